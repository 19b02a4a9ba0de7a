"""What happens in `outlive demo` without machines, in order. Each thing is done when the one before was seen, not after
a time. The answer is one of the demo model's, through the real loop; the worker that streams it is killed."""

import signal
from collections.abc import Callable
from typing import NamedTuple

import anyio
import anyio.abc

from outlive.cli.demo_client import Client, client_environment
from outlive.cli.demo_stage import NAMES, Stage
from outlive.client import AsyncClient, AsyncConversation
from outlive.processes import proc
from outlive.processes.record import read_running
from outlive.wiring.settings import Settings

MESSAGE = "What is lost when I close my laptop?"
MODEL = "demo:"
TITLE = "Demo: a client is cut off and resumes"
# Characters of the answer's live text, not pieces: on a busy machine several pieces come as one.
B_IS_CUT_AFTER = 60
WORKER_IS_KILLED_AFTER = 100
B_RETURNS_AFTER = 1  # of the second attempt


class Outcome(NamedTuple):
    conversation: str
    is_identical: bool
    items: int
    position: str | None
    cut_off_at: str | None
    rewinds: int


class Story:
    def __init__(self, stage: Stage, conversation: AsyncConversation, settings: Settings) -> None:
        self._stage = stage
        self._conversation = conversation
        self._settings = settings
        self._a, self._b = (Client(name, stage, client_environment(settings)) for name in NAMES)
        self._cut_off_at: str | None = None

    async def play(self, *, may_kill: bool) -> Outcome:
        async with anyio.create_task_group() as group:
            await self._follow(group, self._a)
            await self._follow(group, self._b)
            await self._a.until(lambda: self._a.view.head > 0)
            await self._b.until(lambda: self._b.view.head > 0)
            await self._conversation.send(MESSAGE, model=MODEL)
            await self._cut_off()
            if may_kill:
                await self._kill_worker()
            await self._resume(group)
            for client in (self._a, self._b):
                await client.until_done()
                self._stage.set_state(client.name, "has seen it all")
            group.cancel_scope.cancel()
        return await self._compare()

    async def _follow(self, group: anyio.abc.TaskGroup, client: Client) -> None:
        pid = await group.start(client.run, self._conversation.id)
        self._stage.set_state(client.name, f"follows (pid {pid})")

    def _heard(self, client: Client, attempt: int, characters: int) -> Callable[[], bool]:
        """Or all is over: whoever comes late misses what he wanted to see, and must not wait for it."""
        return lambda: client.is_done or client.heard.get(attempt, 0) >= characters

    async def _cut_off(self) -> None:
        await self._b.until(self._heard(self._b, 1, B_IS_CUT_AFTER))
        await self._b.cut_off()
        self._cut_off_at = self._b.view.position
        self._stage.set_state("B", "cut off")
        self._stage.say(f"Client B was CUT OFF (SIGKILL) in the middle of an answer. Its position: {self._cut_off_at}")

    async def _kill_worker(self) -> None:
        await self._a.until(self._heard(self._a, 1, WORKER_IS_KILLED_AFTER))
        record = read_running(self._settings.run_path)
        for child in record.children if record is not None else ():
            if record is not None and child.name == "worker":
                proc.send(record.process_of(child), signal.SIGKILL)
        self._stage.say("The worker was KILLED (SIGKILL) in the middle of the same answer. Another one tries again.")
        await self._a.until(lambda: self._a.is_done or self._a.rewinds > 0)
        if self._a.rewinds:
            self._stage.say("Client A was told: the step was REWOUND, attempt 2 begins. It took the dead words back.")
        await self._a.until(self._heard(self._a, 2, B_RETURNS_AFTER))

    async def _resume(self, group: anyio.abc.TaskGroup) -> None:
        self._stage.say(f"Client B comes back as a new process and RESUMES after {self._cut_off_at}")
        await self._follow(group, self._b)
        if self._a.rewinds:
            await self._b.until(lambda: self._b.is_done or self._b.rewinds > 0)
            self._stage.say("Client B was told of the rewind too, and then of what it had not seen.")

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


async def tell_story(stage: Stage, settings: Settings, url: str, token: str, *, may_kill: bool) -> Outcome:
    async with AsyncClient(url, token) as client:
        conversation = await client.conversations.create(title=TITLE, metadata={"demo": True})
        stage.say(f"A conversation: {conversation.id}. (The built-in demo model answers; no provider is asked.)")
        return await Story(stage, conversation, settings).play(may_kill=may_kill)
