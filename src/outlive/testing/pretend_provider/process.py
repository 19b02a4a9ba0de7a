"""The pretend provider in a process of its own: it goes on while everything else is killed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import httpx

from outlive.testing.pretend_provider.ledger import Call
from outlive.testing.pretend_provider.script import Trouble
from outlive.testing.pretend_provider.server import environment_of


class ProviderProcess:
    """The provider at `url`, asked over its admin addresses."""

    def __init__(self, url: str) -> None:
        self.url = url

    def environment(self) -> dict[str, str]:
        return environment_of(self.url)

    def calls(self) -> list[Call]:
        return [Call(**item) for item in self._ask("GET", "calls")["items"]]

    def request(self, number: int) -> dict[str, Any]:
        """The body of call `number`, while it is kept."""
        return self._ask("GET", f"requests/{number}")

    def arm(self, *troubles: Trouble) -> None:
        """Troubles for the next calls, whoever makes them."""
        items = [{**asdict(trouble), "headers": dict(trouble.headers)} for trouble in troubles]
        self._ask("POST", "troubles", {"items": items})

    def pace(self, slow_s: float = 0.0, pace_s: float = 0.0) -> None:
        """Seconds before an answer's first byte, and between its pieces, where its script says nothing."""
        self._ask("POST", "defaults", {"slow_s": slow_s, "pace_s": pace_s})

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        response = httpx.request(method, f"{self.url}/admin/{path}", json=body, timeout=30, trust_env=False)
        response.raise_for_status()
        document: dict[str, Any] = response.json()
        return document


@contextmanager
def provider_process(port: int = 0) -> Iterator[ProviderProcess]:
    command = [sys.executable, "-m", "outlive.testing.pretend_provider", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own words)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the pretend provider did not start: exit code {process.wait(10)}")
        yield ProviderProcess(json.loads(line)["url"])
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
