"""A stack that is killed whole, and a batch that runs on it as a user runs it: a command in a process of its own."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home
from outlive.processes import proc
from outlive.testing.pretend_provider import ProviderProcess, provider_process

UP_WITHIN = 5  # tries: a stack that is started on a busy host may not be ready in time
MODEL = "openai:pretend"


class BatchStack:
    """Machines are off: what a batch does with the log and the loop is what is tried here."""

    def __init__(self, path: Path, provider: ProviderProcess) -> None:
        self.provider = provider
        self.home = Home(path / "home", **provider.environment())

    def kill(self) -> None:
        """Every process of it at once, as if the host had lost power."""
        record = self.home.record
        pids = [record["pid"], *(child["pid"] for child in record["children"])]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually_sync(lambda: all(proc.find(pid) is None for pid in pids), 60.0)

    def up(self) -> None:
        for _ in range(UP_WITHIN):
            result = self.home.run("up", "--detach", "--json")
            if result.returncode == 0:
                return
        raise AssertionError(result.stderr)

    def conversations(self, batch: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.home.get(f"/v1/conversations?limit=1000{cursor}")
            found += [item for item in page["items"] if item["metadata"].get("batch") == batch]
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"

    def events(self, conversation: str) -> list[dict[str, Any]]:
        return list(self.home.get(f"/v1/conversations/{conversation}/events?limit=1000")["items"])


@contextmanager
def batch_stack(path: Path) -> Iterator[BatchStack]:
    path.mkdir(parents=True, exist_ok=True)
    with provider_process() as provider:
        stack = BatchStack(path, provider)
        stack.up()
        try:
            yield stack
        finally:
            stack.home.stop()


class BatchCommand:
    """`outlive batch run`, again and again."""

    def __init__(self, stack: BatchStack, file: Path, parallel: int) -> None:
        self.folder = file.with_name(f"{file.name}.batch")
        self._stack = stack
        self._command = [*COMMAND, "batch", "run", str(file), "--model", MODEL, "--every", "30"]
        self._command += ["--parallel", str(parallel), "--patience", "900"]
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as we are)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._stack.home.environment,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def said(self) -> str:
        self._said.seek(0)
        return self._said.read().decode()

    @property
    def batch(self) -> str:
        return str(json.loads((self.folder / "batch.json").read_text())["batch"])

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        self.kill()
        self._said.close()
