"""The real API as a process of its own, on a home of its own and a free port."""

import json
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from bench.workshop import READY_S, Process, Workshop
from outlive.base import ConversationId
from outlive.wiring.settings import Settings

_COMMAND = "import sys; from outlive.cli.main import main; sys.argv[1:] = ['api']; main()"


@dataclass
class Api:
    process: Process
    url: str
    token: str

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def stream_path(self, conversation: ConversationId) -> str:
        return f"/v1/conversations/{conversation}/stream"


def start_api(workshop: Workshop, settings: Settings) -> Api:
    """Start it, and return when it is ready."""
    env = {
        "OUTLIVE_HOME": str(settings.home),
        "OUTLIVE_API__PORT": "0",
        "OUTLIVE_DATABASE__URL": settings.database.url.get_secret_value(),
        "OUTLIVE_FEED__URL": settings.feed.url.get_secret_value(),
    }
    settings.endpoint_path.unlink(missing_ok=True)
    process = workshop.start([sys.executable, "-c", _COMMAND], env)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if not process.is_running:
            raise RuntimeError(f"The API ended:\n{process.errors()}")
        endpoint = _read_endpoint(settings.endpoint_path)
        if endpoint is not None and _is_ready(endpoint["url"]):
            return Api(process, endpoint["url"], endpoint["token"])
        time.sleep(0.05)
    raise TimeoutError(f"The API is not ready after {READY_S} s:\n{process.errors()}")


def _read_endpoint(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
