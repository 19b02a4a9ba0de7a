"""What happens in `outlive demo`, in order. Each thing is done when the one before was seen, not after a time."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import anyio
import anyio.abc

from outlive.base import DeadlineError, new_step_id
from outlive.cli.demo_stage import NAMES, Stage
from outlive.client import AsyncClient, AsyncConversation, View
from outlive.client.wire import decode, event_of
from outlive.processes import proc

MESSAGE = "Which files are in my project, and what is lost when I close my laptop?"
TITLE = "Demo: a client is cut off and resumes"
EACH_WITHIN_S = 20.0
# Characters of the third step's live output, not pieces: on a busy machine several pieces come as one.
B_IS_CUT_AFTER = 60
WRITER_IS_KILLED_AFTER = 100
B_RETURNS_AFTER = 1  # of the second attempt


class Outcome(NamedTuple):
    conversation: str
    is_identical: bool
    items: int
    position: str | None
    cut_off_at: str | None
    rewinds: int


class Client:
    """A follower in a process of its own (`outlive follow --json`), and the screen it would show."""

    def __init__(self, name: str, stage: Stage, environment: dict[str, str]) -> None:
        self.name = name
        self.view = View()
        self.heard: dict[tuple[str | None, int | None], int] = {}  # characters of live output, by step and attempt
        self.rewinds = 0
        self.is_done = False
        self.is_running = False
        self._stage = stage
        self._environment = environment
        self._changed = anyio.Event()

    async def run(self, conversation: str, *, task_status: anyio.abc.TaskStatus[anyio.abc.Process]) -> None:
        """Follow from where we are until the process ends, however it ends."""
        after = ["--after", self.view.position] if self.view.position else []
        command = [sys.executable, "-P", "-m", "outlive", "follow", conversation, "--json", *after]
        async with run_process(command, self._environment) as process:
            self.is_running = True
            task_status.started(process)
            assert process.stdout is not None
            rest = b""
            async for chunk in process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:  # what a killed process did not finish is no line
                    self._take(line)
        self.is_running = False
        self._tell()

    def _take(self, line: bytes) -> None:
        event = event_of(decode(line))
        self.view.fold(event)
        if event.type in ("model.delta", "tool.output"):
            self.heard[event.step, event.attempt] = event.data["offset"] + len(event.data["text"])
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
                await self._changed.wait()
            return
        raise DeadlineError(
            "demo.stuck", f"Client {self.name} saw nothing more for {EACH_WITHIN_S:g} s. See logs/demo.log."
        )

    async def until_done(self) -> None:
        await self.until(lambda: self.is_done)


class Story:
    def __init__(self, stage: Stage, conversation: AsyncConversation, turn: str, environment: dict[str, str]) -> None:
        self._stage = stage
        self._conversation = conversation
        self._environment = environment
        self._a, self._b = (Client(name, stage, environment) for name in NAMES)
        self._steps = [new_step_id() for _ in range(3)]
        self._writing = [conversation.id, turn, *self._steps]
        self._cut_off_at: str | None = None

    async def play(self) -> Outcome:
        async with anyio.create_task_group() as group:
            await self._follow(group, self._a)
            cut = await self._follow(group, self._b)
            await self._a.until(lambda: self._a.view.head > 0)
            await self._b.until(lambda: self._b.view.head > 0)
            async with self._writer("first") as writer:
                await self._cut_off(cut)
                await self._kill(writer)
            async with self._writer("second"):
                await self._resume(group)
                for client in (self._a, self._b):
                    await client.until_done()
                    self._stage.set_state(client.name, "has seen it all")
            group.cancel_scope.cancel()
        return await self._compare()

    async def _follow(self, group: anyio.abc.TaskGroup, client: Client) -> anyio.abc.Process:
        process: anyio.abc.Process = await group.start(client.run, self._conversation.id)
        self._stage.set_state(client.name, f"follows (pid {process.pid})")
        return process

    def _heard(self, client: Client, attempt: int, characters: int) -> Callable[[], bool]:
        return lambda: client.heard.get((self._steps[2], attempt), 0) >= characters

    async def _cut_off(self, process: anyio.abc.Process) -> None:
        await self._b.until(self._heard(self._b, 1, B_IS_CUT_AFTER))
        kill(process)
        await process.wait()
        await self._b.until(lambda: not self._b.is_running)  # what was on its way is read
        self._cut_off_at = self._b.view.position
        self._stage.set_state("B", "cut off")
        self._stage.say(f"Client B was CUT OFF (SIGKILL) in the middle of an answer. Its position: {self._cut_off_at}")

    async def _kill(self, writer: anyio.abc.Process) -> None:
        await self._a.until(self._heard(self._a, 1, WRITER_IS_KILLED_AFTER))
        kill(writer)
        await writer.wait()
        self._stage.say("The writer was KILLED (SIGKILL) in the middle of the same answer. Another one tries again.")

    async def _resume(self, group: anyio.abc.TaskGroup) -> None:
        await self._a.until(lambda: self._a.rewinds > 0)
        self._stage.say("Client A was told: the step was REWOUND, attempt 2 begins. It took the dead words back.")
        await self._a.until(self._heard(self._a, 2, B_RETURNS_AFTER))
        self._stage.say(f"Client B comes back as a new process and RESUMES after {self._cut_off_at}")
        await self._follow(group, self._b)
        await self._b.until(lambda: self._b.rewinds > 0)
        self._stage.say("Client B was told of the rewind too, and then of what it had not seen.")

    @asynccontextmanager
    async def _writer(self, part: str) -> AsyncIterator[anyio.abc.Process]:
        command = [sys.executable, "-P", "-m", "outlive.processes.demo_writer", part, *self._writing]
        async with run_process(command, self._environment) as process:
            yield process

    async def _compare(self) -> Outcome:
        transcript = await self._conversation.transcript()
        items = [*transcript.items]
        return Outcome(
            conversation=self._conversation.id,
            is_identical=self._a.view.items() == items == self._b.view.items(),
            items=len(items),
            position=self._b.view.position,
            cut_off_at=self._cut_off_at,
            rewinds=self._b.rewinds,
        )


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


async def tell_story(stage: Stage, home: Path, url: str, token: str) -> Outcome:
    # The token stays in its file: the environment of a process can be read by more than the process.
    inherited = {name: value for name, value in os.environ.items() if name not in ("OUTLIVE_URL", "OUTLIVE_TOKEN")}
    environment = {**inherited, "OUTLIVE_HOME": str(home)}
    async with AsyncClient(url, token) as client:
        conversation = await client.conversations.create(title=TITLE, metadata={"demo": True})
        stage.say(f"A conversation: {conversation.id}. (Its words are fixed: a pretend model speaks them.)")
        sent = await conversation.send(MESSAGE)
        return await Story(stage, conversation, sent.turn_id, environment).play()
