"""Before a stack is stopped the machines of its node are hibernated, so that the next start finds them as they were.

Asked over HTTP, of the API that is about to be stopped. A stack whose API does not answer is stopped all the same: its
machines then come back from their last checkpoint.
"""

import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlive.processes.endpoint import read_endpoint
from outlive.processes.probe import ask, get
from outlive.processes.record import read_running
from outlive.wiring.node import find_node_id
from outlive.wiring.settings import Places

HIBERNATE_WITHIN_S = 120.0
AT_ONCE = 4
_PAGE = 100  # machines: what one answer may hold is bounded

Say = Callable[[str], None]


def hibernate_all(home: Places, say: Say, within_s: float) -> None:
    """Hibernate every machine that runs on this stack's node, within `within_s`. Says what it does; never raises for an
    API that is away or a machine that does not hibernate."""
    machines = running_machines(home)
    record, endpoint = read_running(home.run_path), read_endpoint(home.endpoint_path)
    if not machines or record is None or record.url is None or endpoint is None:
        return
    say(f"hibernating {len(machines)} {'machine' if len(machines) == 1 else 'machines'}")
    until = time.monotonic() + within_s
    hibernate = partial(_hibernate, record.url, record.tls_path, endpoint.token, until)
    # Not a `with` block: that would wait for those that do not come to an end in time.
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        asked = {pool.submit(hibernate, machine): machine for machine in machines}
        for number, done in enumerate(as_completed(asked, timeout=max(0.0, until - time.monotonic())), 1):
            told = done.result()
            say(f"{number} of {len(machines)}: {asked[done]} {told or 'is hibernated'}")
    except TimeoutError:
        say(f"not all were hibernated within {within_s:g} s")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _hibernate(url: str, tls_path: Path | None, token: str, until: float, machine: str) -> str | None:
    """What went wrong with it, if anything did."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        return "was not reached in time"
    try:
        status, body = ask("POST", url, f"/v1/machines/{machine}/hibernate", tls_path, token, left_s)
        problem: Any = json.loads(body) if status != http.client.OK else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"was not hibernated: {error or type(error).__name__}"
    return None if status == http.client.OK else f"was not hibernated: {problem.get('detail', status)}"


def running_machines(home: Places) -> list[str]:
    """The ids of the machines that run on this stack's node. None if no stack runs here, or it has no machines."""
    record, endpoint = read_running(home.run_path), read_endpoint(home.endpoint_path)
    if record is None or record.url is None or record.machines_off is not None or endpoint is None:
        return []
    node = find_node_id(Path(record.node_path)) if record.node_path is not None else None
    found: list[str] = []
    cursor: object = ""
    try:
        while node is not None and isinstance(cursor, str):
            page = f"/v1/machines?state=running&limit={_PAGE}" + (f"&cursor={quote(cursor)}" if cursor else "")
            status, body = get(record.url, page, record.tls_path, endpoint.token)
            answer: Any = json.loads(body) if status == http.client.OK else {}
            # An API of several hosts tells of the machines of all of them: what runs on another is none of ours.
            found += [str(item["id"]) for item in answer.get("items", []) if item.get("node") == node]
            cursor = answer.get("next")
    except (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError):
        pass  # those that were told of are hibernated; the node's drain sees to the rest
    return found
