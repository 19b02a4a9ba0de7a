"""Conversations that are followed all the time while everything dies around them, with all that was shown of them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.abc

from crash.loop.checker import Account
from crash.loop.kinds import FOLDER, MODEL, PLAIN, Kind
from eventually import eventually
from outlive.base import NotFoundError, OutliveError
from outlive.client import AsyncClient, Event, View
from outlive.client.conversations import AsyncConversation
from outlive.client.transport import may_heal
from outlive.testing.pretend_provider import Call

TURN_WITHIN_S = 120.0
PATIENCE_S = 300.0
LOOKS = 5
# Every line of every file there, as file:line.
LOOK = f"cd {FOLDER} && grep -H '' ran *.txt 2>/dev/null; true"

script = PLAIN.script


T = TypeVar("T")


async def patiently(act: Callable[[], Awaitable[T]], within_s: float = PATIENCE_S) -> T:
    """What comes of it; again while something is away. Only for what may be asked twice."""
    found: list[T] = []

    async def is_done() -> bool:
        try:
            found.append(await act())
        except OutliveError as error:
            if not may_heal(error):
                raise
            return False
        return True

    await eventually(is_done, within_s)
    return found[0]


class Talk:
    """One conversation, followed from its first event on. `since`: what comes before is of what it was forked from."""

    def __init__(self, client: AsyncClient, conversation: AsyncConversation, since: int = 0) -> None:
        self.conversation = conversation
        self.client = client
        self.since = since
        self.seen: list[Event] = []
        self.view = View()
        self.turns: dict[str, str] = {}  # tag -> turn
        self.kinds: dict[str, Kind] = {}
        self._over: set[str] = set()
        self._grown = anyio.Event()

    @property
    def id(self) -> str:
        return self.conversation.id

    async def watch(self, task_status: anyio.abc.TaskStatus[anyio.CancelScope] = anyio.TASK_STATUS_IGNORED) -> None:
        """For ever. Whatever is away is waited for."""
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            async for event in self.conversation.follow():
                self.seen.append(event)
                self.view.fold(event)
                if event.type == "turn.finished" and event.turn is not None:
                    self._over.add(event.turn)
                self._grown.set()
                self._grown = anyio.Event()

    async def send(self, tag: str, text: str | None = None, kind: Kind = PLAIN) -> str:
        words, key = kind.script(tag) if text is None else text, f"{self.id}/{tag}"
        sent = await patiently(lambda: self.conversation.send(words, idempotency_key=key))
        self.turns[tag], self.kinds[tag] = sent.turn_id, kind
        return sent.turn_id

    def own(self, *types: str) -> list[Event]:
        """What the follower was shown of these, without what was there before it was forked."""
        return [event for event in self.seen if event.type in types and (event.seq or 0) > self.since]

    def is_over(self, turn: str | None) -> bool:
        return turn in self._over

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Looked at whenever something is shown."""
        try:
            with anyio.fail_after(within_s):
                while not condition():
                    await self._grown.wait()
        except TimeoutError as error:
            for event in self.seen[-60:]:
                if event.seq is not None:
                    error.add_note(f"{event.seq} {event.at} {event.type} {event.step} {json.dumps(event.data)[:300]}")
            error.add_note(f"{self.id}: {condition} did not come true within {within_s:g} s")
            raise

    async def ended(self, turn: str, within_s: float = TURN_WITHIN_S) -> None:
        """Once the follower was shown the end of the turn."""
        await self.until(lambda: turn in self._over, within_s)

    async def do(self, tag: str) -> None:
        """A plain turn from its message to its end."""
        await self.ended(await self.send(tag))

    # ── what is there when all is over ──

    async def log(self) -> list[Event]:
        return [event async for event in self.conversation.events()]

    async def lines(self) -> list[str]:
        """What the turns have left in the machine."""
        for _ in range(LOOKS):
            try:
                machine = await patiently(self.conversation.machine)
                looked = await patiently(lambda machine=machine: machine.exec(LOOK))  # type: ignore[misc]
            except NotFoundError:
                return []
            if looked.outcome == "finished":  # else the look itself was lost with a dying node
                return str(looked.stdout).splitlines()
        raise AssertionError(f"{LOOKS} looks into the machine of {self.id} were lost")

    async def leave(self) -> None:
        """Its machine is for nobody else."""
        with suppress(NotFoundError):
            machine = await patiently(self.conversation.machine)
            await patiently(machine.delete)

    async def account(
        self,
        calls: Sequence[Call],
        *,
        lines: Sequence[str] | None = None,
        beside: Mapping[str, Kind] | None = None,
        is_seen: bool = True,
    ) -> Account:
        """All there is to know, for the checker. `calls`: of the provider, for whomever. `lines`: of the machine, if
        somebody has looked; with `is_seen` it is looked into. `beside`: what else was asked for there."""
        log, transcript = await self._whole()
        own = [event for event in log if (event.seq or 0) > self.since]
        steps = {event.step for event in own}
        return Account(
            turns=dict(self.turns),
            log=log,
            seen=tuple(self.seen),
            shown=self.view.items(),
            transcript=transcript,
            calls=[call for call in calls if call.step in steps],
            lines=await self.lines() if lines is None and is_seen else lines,
            kinds=dict(self.kinds),
            since=self.since,
            beside=dict(beside or {}),
        )

    async def _whole(self) -> tuple[list[Event], list[Mapping[str, Any]]]:
        """The log and the transcript, when the follower was shown all of it and nothing was added meanwhile."""
        for _ in range(100):
            head = (await patiently(self.conversation.refresh)).head
            await self.until(lambda head=head: self.view.head >= head, TURN_WITHIN_S)  # type: ignore[misc]
            transcript = await patiently(self.conversation.transcript)
            log = await patiently(self.log)
            if self.view.head == transcript.head == len(log):
                return log, list(transcript.items)
        raise AssertionError(f"{self.id} is written to all the time")


@asynccontextmanager
async def open_talks(url: str, token: str, count: int = 1, agent: str | None = None) -> AsyncIterator[list[Talk]]:
    async with (
        AsyncClient(url, token, deadline_s=PATIENCE_S, patience_s=PATIENCE_S) as client,
        anyio.create_task_group() as watching,
    ):
        model = MODEL if agent is None else None
        create = client.conversations.create
        made = [await create(environment="host", agent=agent, model=model) for _ in range(count)]
        talks = [Talk(client, conversation) for conversation in made]
        for talk in talks:
            await watching.start(talk.watch)
        yield talks
        for talk in talks:
            await talk.leave()
        watching.cancel_scope.cancel()
