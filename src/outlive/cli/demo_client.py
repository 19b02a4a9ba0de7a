"""A client of `outlive demo` that is a process of its own, so that it can be killed and come back."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.abc

from outlive.base import DeadlineError, UnavailableError
from outlive.cli.demo_stage import Stage
from outlive.client import View
from outlive.client.wire import decode, event_of
from outlive.processes import proc
from outlive.wiring.settings import Settings

EACH_WITHIN_S = 60.0
_STARTS = 20  # of a client that ends by itself: an API that is being restarted is away for longer than one waits for it


class Client:
    """A follower in a process of its own (`outlive follow --json`), and the screen it would show."""

    def __init__(self, name: str, stage: Stage, environment: dict[str, str]) -> None:
        self.name = name
        self.view = View()
        self.heard: dict[int | None, int] = {}  # characters of live text, by attempt
        self.rewinds = 0
        self.is_done = False
        self.is_running = False
        self._is_cut_off = False
        self._last_words = ""  # of a process that ended by itself
        self._process: anyio.abc.Process | None = None
        self._stage = stage
        self._environment = environment
        self._changed = anyio.Event()

    async def run(self, conversation: str, *, task_status: anyio.abc.TaskStatus[int]) -> None:
        """Follow from where we are until it is cut off; a process that ends by itself is started again, for a while.
        Started with the first one's pid."""
        self._is_cut_off, self.is_running = False, True
        for start in range(_STARTS):
            after = ["--after", self.view.position] if self.view.position else []
            command = [sys.executable, "-P", "-m", "outlive", "follow", conversation, "--json", *after]
            async with run_process(command, self._environment) as process:
                self._process = process
                if self._is_cut_off:  # while it was being started again
                    kill(process)
                if start == 0:
                    task_status.started(process.pid)
                await self._read(process)
            if self._is_cut_off:
                break
        self.is_running = False
        self._tell()

    async def _read(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:  # what a killed process did not finish is no line
                self._take(line)

    def _take(self, line: bytes) -> None:
        told = decode(line)
        if "type" not in told:  # no event, but why it ends
            self._last_words = f": {told.get('detail')}"
            return
        event = event_of(told)
        self.view.fold(event)
        if event.type in ("model.delta", "tool.output"):
            self.heard[event.attempt] = event.data["offset"] + len(event.data["text"])
        self.rewinds += event.type == "step.rewound"
        self.is_done = self.is_done or event.type == "turn.finished"
        self._stage.show(self.name, event, self.view)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.move_on_after(EACH_WITHIN_S):
            while not condition():
                if not self.is_running:
                    raise UnavailableError(
                        "demo.client_gone",
                        f"Client {self.name} ended by itself, {_STARTS} times{self._last_words}. See logs/demo.log.",
                    )
                await self._changed.wait()
            return
        raise DeadlineError(
            "demo.stuck",
            f"Client {self.name} did not see within {EACH_WITHIN_S:g} s what it should. See logs/demo.log.",
        )

    async def until_done(self) -> None:
        await self.until(lambda: self.is_done)

    async def cut_off(self) -> None:
        self._is_cut_off = True
        if self._process is not None:
            kill(self._process)
        await self.until(lambda: not self.is_running)  # what was on its way is read


def client_environment(settings: Settings) -> dict[str, str]:
    # The token stays in its file: the environment of a process can be read by more than the process.
    inherited = {name: value for name, value in os.environ.items() if name not in ("OUTLIVE_URL", "OUTLIVE_TOKEN")}
    return {**inherited, "OUTLIVE_HOME": str(settings.home)}


@asynccontextmanager
async def run_process(command: list[str], environment: dict[str, str]) -> AsyncIterator[anyio.abc.Process]:
    """A process that is gone when this is left, whatever the reason. A Ctrl-C at the terminal does not reach it."""
    with anyio.CancelScope(shield=True), _open_log(environment) as log:  # never half started
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stderr=log, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            kill(process)
            await process.aclose()


def kill(process: anyio.abc.Process) -> None:
    """SIGKILL, if it still runs. Not by its own method: that would collect a process that has just ended by itself, and
    take its exit code from whoever waits for it."""
    found = proc.find(process.pid)
    if process.returncode is None and found is not None:
        proc.send(found, signal.SIGKILL)


def _open_log(environment: dict[str, str]) -> BinaryIO:
    path = Path(environment["OUTLIVE_HOME"], "logs", "demo.log")
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
