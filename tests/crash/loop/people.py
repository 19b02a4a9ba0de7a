"""People who work with agents while everything dies around them: each has one conversation, asks for one thing after
the other, answers when asked, and sees each thing to its end, with all the conversations that it made."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc

from crash.loop.checker import Account, batch_wrongs
from crash.loop.kinds import AGENT, CONTESTANTS, Kind
from crash.loop.talks import Talk, patiently
from eventually import eventually
from outlive.base import ConflictError, NotFoundError, OutliveError
from outlive.client import AsyncClient, Event
from outlive.client.batches import BatchRun, Header, Options, Standing, open_record, read_items
from outlive.client.races import AsyncRace
from outlive.testing.pretend_provider import Call

WITHIN_S = 1_800.0  # while everything dies
GONE_WITHIN_S = 120.0
_HESITATES_S = 20.0
_RACES = 3  # begun for one that is wanted
# When somebody answers: at once, once the turn waits, or once its machine sleeps.
_MOODS = ("approval.requested", "turn.parked", "machine.hibernated")


@dataclass(frozen=True, slots=True)
class Part:
    """A conversation that a turn, a race or a batch made, as it was when it was over."""

    talk: Talk
    account: Account
    is_same: bool  # it worked in the machine of whoever made it
    doomed: str | None  # its machine, if that is to be gone


class Person:
    def __init__(self, talk: Talk, group: anyio.abc.TaskGroup, folder: Path, seed: str, *, is_hasty: bool) -> None:
        """`folder`: for what a batch writes down. `is_hasty`: answers at once, always."""
        self.talk = talk
        self.done: Counter[str] = Counter()  # by kind
        self.wrongs: list[str] = []
        self._group = group
        self._folder = folder
        self._random = random.Random(seed)
        self._is_hasty = is_hasty
        self._parts: list[Part] = []
        self._open: dict[Talk, anyio.CancelScope] = {}
        self._stirred = 0

    @property
    def _client(self) -> AsyncClient:
        return self.talk.client

    @property
    def progress(self) -> int:
        """Grows while something goes on."""
        heads = sum(talk.view.head for talk in (self.talk, *self._open))
        return heads + sum(len(part.account.log) for part in self._parts) + self._stirred

    async def do(self, kind: Kind, tag: str) -> None:
        await {"turn": self._turn, "race": self._race, "batch": self._batch}[kind.does](kind, tag)
        self.done[kind.name] += 1

    # ── a turn ──

    async def _turn(self, kind: Kind, tag: str) -> None:
        turn = await self.talk.send(tag, kind=kind)
        answered: set[str] = set()
        children: dict[str, Talk] = {}

        def news() -> list[Event]:
            found = [event for event in self.talk.own("approval.requested", "subagent.started") if event.turn == turn]
            return [each for each in found if each.data.get("approval", each.data.get("conversation")) not in known()]

        def known() -> set[str]:
            return answered | children.keys()

        while not self.talk.is_over(turn) or news():
            await self.talk.until(lambda: self.talk.is_over(turn) or bool(news()), WITHIN_S)
            for event in news():
                if event.type == "subagent.started":
                    child = event.data["conversation"]
                    children[child] = await self._follow(child, kind.parts[0], tag)
                else:
                    answered.add(event.data["approval"])
                    await self._answer(kind, event)
        for child, talk in children.items():
            if kind.is_detached:
                await self._reported(child)
            await self._ended(talk, tag)
            machine = (await patiently(talk.conversation.refresh)).machine_id
            where = kind.machine
            await self._close(talk, is_seen=where == "new", is_same=where == "same", doomed=machine)

    async def _answer(self, kind: Kind, question: Event) -> None:
        mood = _MOODS[0] if self._is_hasty else self._random.choice(_MOODS)

        def is_time() -> bool:
            later = (event for event in self.talk.own(mood) if (event.seq or 0) >= (question.seq or 0))
            return self.talk.is_over(question.turn) or any(later)

        with suppress(TimeoutError):
            await self.talk.until(is_time, _HESITATES_S)
        if kind.answer is None:
            raise AssertionError(f"{self.talk.id}: {kind.name} asked {question.data['question']!r}")
        decision, comment = kind.answer
        decide = self._client.approvals.approve if decision == "approve" else self._client.approvals.deny
        try:
            await patiently(lambda: decide(question.data["approval"], comment), WITHIN_S)
        except ConflictError as error:
            if error.code != "approval.decided":  # then it was heard, and we were not told
                raise

    async def _reported(self, child: str) -> None:
        """Once a detached one's report came, and the turn that took it is over."""

        def is_reported() -> bool:
            reports = [event for event in self.talk.own("message.sent") if event.actor == f"subagent:{child}"]
            return bool(reports) and all(self.talk.is_over(report.turn) for report in reports)

        await self.talk.until(is_reported, WITHIN_S)

    # ── a race ──

    async def _begun_race(self, kind: Kind, tag: str) -> AsyncRace:
        """A machine that no node takes for half a minute is not made, and that is said. While nodes are killed all the
        time it happens to a race; whoever wants one asks again."""
        lame: list[str | None] = []
        for _ in range(_RACES):
            race = await self.talk.conversation.race(kind.script(tag), CONTESTANTS)

            async def is_begun(race: AsyncRace = race) -> bool:
                return (await patiently(race.refresh)).state != "starting"

            await eventually(is_begun, WITHIN_S)
            self._stirred += 1
            lame = [each.reason for each in race.contestants if each.state == "failed"]
            if not lame:
                return race
            if len(lame) < len(race.contestants) or not all("No node has room" in (why or "") for why in lame):
                break
        raise AssertionError(f"{tag}: contestants could not be started: {lame}")

    async def _race(self, kind: Kind, tag: str) -> None:
        race = await self._begun_race(kind, tag)
        talks = [
            await self._follow(each.conversation, part, tag, race.facts.at)
            for each, part in zip(race.contestants, kind.parts, strict=True)
        ]
        for talk in talks:
            await self._ended(talk, tag)
        chosen = self._random.choice(race.contestants).conversation
        await patiently(lambda: race.choose(chosen), WITHIN_S)
        self._stirred += 1
        for talk, contestant in zip(talks, race.contestants, strict=True):
            is_chosen = contestant.conversation == chosen
            if contestant.state != ("chosen" if is_chosen else "let_go"):
                self.wrongs.append(f"asking: {tag}: {contestant.conversation} is {contestant.state}; {chosen} is kept")
            await self._close(talk, is_seen=is_chosen, doomed=contestant.machine)

    # ── a batch ──

    async def _batch(self, kind: Kind, tag: str) -> None:
        batch = f"{self.talk.id}/{tag}"
        rows = ({"id": part.name, "prompt": part.script(tag)} for part in kind.parts)
        items = read_items("items.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        header = Header(batch, "items.jsonl", str(AGENT["name"]), None, "host", None, None)
        with open_record(self._folder / self.talk.id / tag, header) as record:
            await BatchRun(self._client, record, items, self, Options(parallel=2, patience_s=WITHIN_S)).run()
            results, failures = list(record.results), list(record.failures)
        made = [str(each["item"]) for each in await patiently(self._metadata) if each.get("batch") == batch]
        self.wrongs += batch_wrongs(tag, {item.key: str(item.name) for item in items}, results, failures, made)
        parts = {part.name: part for part in kind.parts}
        for line in results:
            talk = await self._follow(str(line["conversation"]), parts[str(line["item"])], tag)
            await self._ended(talk, tag)
            await self._close(talk)

    async def _metadata(self) -> list[Mapping[str, object]]:
        """Of all conversations there are."""
        return [each.metadata async for page in self._client.conversations.pages() for each in page]

    def told(self, standing: Standing) -> None:
        self._stirred += 1

    def away(self, error: OutliveError) -> None:
        """It waits, as we do."""

    def back(self) -> None:
        self._stirred += 1

    # ── what it made ──

    async def _follow(self, conversation: str, kind: Kind, tag: str, since: int = 0) -> Talk:
        talk = Talk(self._client, await patiently(lambda: self._client.conversations.get(conversation)), since)
        talk.kinds[tag] = kind
        self._open[talk] = await self._group.start(talk.watch)
        return talk

    async def _ended(self, talk: Talk, tag: str) -> None:
        await talk.until(lambda: bool(talk.own("message.sent")), WITHIN_S)
        talk.turns[tag] = talk.own("message.sent")[0].turn or ""
        await talk.ended(talk.turns[tag], WITHIN_S)

    async def _close(
        self, talk: Talk, *, is_seen: bool = False, is_same: bool = False, doomed: str | None = None
    ) -> None:
        """Nobody follows it any more. `is_seen`: its machine is looked into; then it is deleted."""
        account = await talk.account((), is_seen=is_seen, beside=dict(self.talk.kinds))
        if is_seen:
            await talk.leave()
        self._parts.append(Part(talk, account, is_same, None if is_same else doomed))
        self._open.pop(talk).cancel()

    # ── when all is over ──

    async def accounts(self, calls: Sequence[Call]) -> list[Account]:
        """Of its conversation, and of all that came of it."""
        own = await self.talk.account(calls)
        return [own, *[await self._whole(part, own, calls) for part in self._parts]]

    async def _whole(self, part: Part, own: Account, calls: Sequence[Call]) -> Account:
        steps = {event.step for event in part.account.own}
        return replace(
            part.account,
            calls=[call for call in calls if call.step in steps],
            lines=own.lines if part.is_same else part.account.lines,
            beside=own.kinds if part.is_same else part.account.beside,
            later=[event async for event in part.talk.conversation.events(len(part.account.log))],
            left=[] if part.doomed is None or await self._is_gone(part.doomed) else [part.doomed],
        )

    async def _is_gone(self, machine: str) -> bool:
        async def is_gone() -> bool:
            try:
                return (await self._client.machines.get(machine)).state == "deleted"
            except NotFoundError:
                return True

        try:
            await eventually(is_gone, GONE_WITHIN_S)
        except AssertionError:
            return False
        return True
