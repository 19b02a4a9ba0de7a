"""The real stack (`outlive up`: API, worker, node, Temporal) on a home of its own, and plain HTTP to it."""

import http.client
import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.workshop import Workshop
from outlive.base import new_effect_id, new_operation_id
from outlive.wiring.settings import Settings, read_settings

_START_S = 120.0
_END_S = 120.0
_CALL_S = 120.0
_POLL_S = 0.02
# Nothing happens by itself while something is measured; a benchmark that wants it sets it.
_QUIET = {
    "OUTLIVE_API__PORT": "0",
    "OUTLIVE_MACHINES__ENABLED": "on",
    "OUTLIVE_MACHINES__FREEZE_AFTER_S": "0",
    "OUTLIVE_MACHINES__HIBERNATE_AFTER_S": "0",
    "OUTLIVE_MACHINES__CHECKPOINT_EVERY_S": "0",
}


class Line:
    """One connection to the API, kept open, for one caller. What the SDK sends, without the SDK."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_CALL_S)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None, *, has_key: bool = True) -> Any:
        headers = {**self._headers, **({"Idempotency-Key": new_operation_id()} if method == "POST" and has_key else {})}
        content = None if body is None else json.dumps(body)
        try:
            return self._ask(method, path, content, headers)
        except (BrokenPipeError, http.client.RemoteDisconnected):  # idle for so long that the server has closed it
            self._connection.close()
            return self._ask(method, path, content, headers)

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Any:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content or b"null")

    def create(self, environment: str) -> str:
        return str(self.call("POST", "/v1/machines", {"environment": environment})["id"])

    def do(self, machine: str, verb: str) -> Any:
        return self.call("POST", f"/v1/machines/{machine}/{verb}", {})

    def exec(self, machine: str, **words: object) -> Any:
        body = {"effect_id": new_effect_id(), **words}
        return self.call("POST", f"/v1/machines/{machine}/exec", body, has_key=False)

    def put_file(self, machine: str, path: str, content: bytes) -> None:
        headers = {**self._headers, "Content-Type": "application/octet-stream"}
        self._connection.request("PUT", f"/v1/machines/{machine}/files{path}", content, headers)
        answer = self._connection.getresponse()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"PUT {path}: {answer.status} {answer.read().decode(errors='replace')}")
        answer.read()

    def delete(self, machine: str) -> None:
        self.call("DELETE", f"/v1/machines/{machine}")

    def close(self) -> None:
        self._connection.close()


class Stack:
    def __init__(self, settings: Settings, url: str, bare_path: Path) -> None:
        self.settings = settings
        self.bare_path = bare_path  # where a bare rival may have its sandboxes: they are cleaned up too
        self.url = url
        self.token = str(json.loads(settings.endpoint_path.read_text())["token"])
        self.line = Line(url, self.token)

    @contextmanager
    def lines(self, count: int) -> Iterator[list[Line]]:
        made = [Line(self.url, self.token) for _ in range(count)]
        try:
            yield made
        finally:
            for line in made:
                line.close()

    def create_many(self, environment: str, count: int) -> tuple[list[str], float]:
        """So many at once, each asked for by a caller of its own; and the seconds until the last was running."""
        with self.lines(count) as lines, ThreadPoolExecutor(count) as pool:
            started_at = time.perf_counter()
            made = list(pool.map(lambda line: line.create(environment), lines))
            return made, time.perf_counter() - started_at

    def delete_all(self) -> None:
        for found in self.line.call("GET", "/v1/machines?limit=1000")["items"]:
            self.line.delete(found["id"])

    def define(self, definition: dict[str, object]) -> dict[str, object]:
        shown = self.line.call("POST", "/v1/environments", definition)
        assert shown["state"] == "ready", shown
        return dict(shown)

    def wait_for_pool(self, count: int, within_s: float = 120.0) -> None:
        """Until so many machines wait. They are no one's, so the API does not show them: the database does."""
        path = self.settings.sqlite_path
        assert path is not None
        deadline = time.monotonic() + within_s
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            while True:
                [waiting] = database.execute(
                    "SELECT COUNT(*) FROM machines WHERE is_warm AND state = 'running'"
                ).fetchone()
                if waiting >= count:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"only {waiting} of {count} machines wait in the pool after {within_s:g} s")
                time.sleep(_POLL_S)


@contextmanager
def open_stack(workshop: Workshop, **environment: str) -> Iterator[Stack]:
    """A stack that is ready. Leaving it leaves nothing: no process, no sandbox, no mount."""
    home, bare = workshop.path("home"), workshop.path("bare")
    settings = read_settings({"home": home})
    keeper = workshop.start_python("bench.machines_keeper")
    keeper.tell(
        home=str(home),
        environment={**_QUIET, **environment},
        node_paths=[str(settings.node_path), str(bare)],
    )
    try:
        yield Stack(settings, str(keeper.hear(_START_S)["url"]), bare)
    finally:
        if keeper.is_running:
            keeper.tell(end=True)
            keeper.hear(_END_S)
