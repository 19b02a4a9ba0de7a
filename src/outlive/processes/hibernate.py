"""Before a stack is stopped its machines are hibernated, so that the next start finds them as they were.

Asked over HTTP, of the API that is about to be stopped. A stack whose API does not answer is stopped all the same: its
machines then come back from their last checkpoint.
"""

import http.client
import json
from collections.abc import Callable
from typing import Any

from outlive.processes.endpoint import read_endpoint
from outlive.processes.probe import get
from outlive.processes.record import read_running
from outlive.wiring.settings import Places

HIBERNATE_WITHIN_S = 120.0

Say = Callable[[str], None]


def hibernate_all(home: Places, say: Say, within_s: float) -> None:
    """Hibernate every machine that runs on this stack, within `within_s`. Says what it does; never raises for an API
    that is away or a machine that does not hibernate."""
    machines = running_machines(home)
    if machines:
        say(f"{len(machines)} machines are running")


def running_machines(home: Places) -> list[str]:
    """The ids of the machines that run. None if no stack runs here, or it has no machines."""
    record, endpoint = read_running(home.run_path), read_endpoint(home.endpoint_path)
    if record is None or record.url is None or record.machines_off is not None or endpoint is None:
        return []
    try:
        status, body = get(record.url, "/v1/machines", record.tls_path, endpoint.token)
        answer: Any = json.loads(body) if status == http.client.OK else {}
        return [str(item["id"]) for item in answer.get("items", []) if item.get("state") == "running"]
    except (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError):
        return []
