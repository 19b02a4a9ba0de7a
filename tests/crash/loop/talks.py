"""People who talk to agents while everything dies around them: each sends messages through the SDK, follows all the
time, and keeps what was shown.

A turn here has three model steps, two commands that each leave a line in a file that can be counted, and a file that is
written before the second command adds to it: a write that came twice would take that away.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from crash.loop.checker import Account
from outlive.base import NotFoundError
from outlive.client import AsyncClient, Event, View
from outlive.client.conversations import AsyncConversation
from outlive.testing.pretend_provider import Call

TURN_WITHIN_S = 120.0
PATIENCE_S = 60.0
MODEL = "openai:pretend"  # whose SDK is quicker to load: every worker that is started again does
FOLDER = "/workspace"
RAN = f"{FOLDER}/ran"
# Every line of every file there, as file:line.
LOOK = f"cd {FOLDER} && grep -H '' ran *.txt 2>/dev/null; true"


def script(tag: str) -> str:
    """What to ask the pretend provider for. Tags have one length, so that what a turn says differs by the tag alone."""
    return " ".join(
        (
            f"Do {tag}. [[say I begin with {tag}.]]",
            _tool("shell", command=f"echo {tag}.1 >> {RAN}; echo first of {tag}"),
            "[[say Now a file.]]",
            _tool("write_file", path=f"{FOLDER}/{tag}.txt", content=f"{tag} written\n"),
            _tool("shell", "also tool", command=f"echo {tag}.2 | tee -a {RAN} >> {FOLDER}/{tag}.txt; echo then {tag}"),
            "[[say All is done: ]] [[quote 100]]",
        )
    )


def _tool(name: str, word: str = "tool", **arguments: str) -> str:
    return f"[[{word} {name} {json.dumps(arguments)}]]"


class Talk:
    """One conversation, followed from its first event on."""

    def __init__(self, client: AsyncClient, conversation: AsyncConversation) -> None:
        self.conversation = conversation
        self.seen: list[Event] = []
        self.view = View()
        self.turns: dict[str, str] = {}  # tag -> turn
        self._client = client
        self._over: set[str] = set()
        self._grown = anyio.Event()

    @property
    def id(self) -> str:
        return self.conversation.id

    async def watch(self) -> None:
        """For ever. Whatever is away is waited for."""
        async for event in self.conversation.follow():
            self.seen.append(event)
            self.view.fold(event)
            if event.type == "turn.finished" and event.turn is not None:
                self._over.add(event.turn)
            self._grown.set()
            self._grown = anyio.Event()

    async def send(self, tag: str, text: str | None = None) -> str:
        sent = await self.conversation.send(script(tag) if text is None else text)
        self.turns[tag] = sent.turn_id
        return sent.turn_id

    async def ended(self, turn: str, within_s: float = TURN_WITHIN_S) -> None:
        """Once the follower was shown the end of the turn."""
        try:
            with anyio.fail_after(within_s):
                while turn not in self._over:
                    await self._grown.wait()
        except TimeoutError as error:
            for event in self.seen[-60:]:
                if event.seq is not None:
                    error.add_note(f"{event.seq} {event.at} {event.type} {event.step} {json.dumps(event.data)[:300]}")
            error.add_note(f"{self.id} {turn} did not end within {within_s:g} s")
            raise

    async def do(self, tag: str) -> None:
        """A turn from its message to its end."""
        await self.ended(await self.send(tag))

    # ── what is there when all is over ──

    async def log(self) -> list[Event]:
        return [event async for event in self.conversation.events()]

    async def transcript(self) -> list[Mapping[str, Any]]:
        return list((await self.conversation.transcript()).items)

    async def caught_up(self) -> None:
        """Once the follower was shown all that is in the log."""
        head = (await self.conversation.refresh()).facts.head
        with anyio.fail_after(TURN_WITHIN_S):
            while self.view.head < head:
                await self._grown.wait()

    async def lines(self) -> list[str]:
        """What the turns have left in the machine."""
        machine = await self.conversation.machine()
        return (await machine.exec(LOOK)).stdout.splitlines()

    async def leave(self) -> None:
        """Its machine is for nobody else."""
        with suppress(NotFoundError):
            await (await self.conversation.machine()).delete()

    async def account(self, calls: Sequence[Call]) -> Account:
        """All there is to know, for the checker. `calls`: of the provider, for whomever."""
        await self.caught_up()
        log = await self.log()
        steps = {event.step for event in log}
        return Account(
            turns=self.turns,
            log=log,
            seen=tuple(self.seen),
            shown=self.view.items(),
            transcript=await self.transcript(),
            calls=[call for call in calls if call.step in steps],
            lines=await self.lines(),
        )


@asynccontextmanager
async def open_talks(url: str, token: str, count: int = 1) -> AsyncIterator[list[Talk]]:
    async with AsyncClient(url, token, patience_s=PATIENCE_S) as client, anyio.create_task_group() as watching:
        made = [await client.conversations.create(environment="host", model=MODEL) for _ in range(count)]
        talks = [Talk(client, conversation) for conversation in made]
        for talk in talks:
            watching.start_soon(talk.watch)
        yield talks
        for talk in talks:
            await talk.leave()
        watching.cancel_scope.cancel()
