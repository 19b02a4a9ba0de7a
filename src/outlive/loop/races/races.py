"""Races at work: start them, show them, choose one, and let go of the others.

Rule 1: the record is written first; from then on a race goes on by itself. Whoever asked for it does the work, and
        if that one dies the sweeper does: every piece of it may be done twice, late and at the same time.
Rule 2: letting go of a contestant has an order: archive it (no new turn can begin), stop its turn, then delete its
        machines. The record says `chosen` only when nothing of it is left.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from outlive.base import (
    Clock,
    ConflictError,
    ConversationId,
    CrashPoint,
    NotFoundError,
    OperationId,
    OutliveError,
    PrincipalId,
    RaceId,
    derive,
    reach,
    to_text,
)
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.log import Conversation
from outlive.loop.client import LoopClient
from outlive.loop.machine_forks import MachineForks, Source
from outlive.loop.races.race import Contestant, Race, RaceRecords, RaceSource, Result, choose, let_go, started

_log = logging.getLogger(__name__)

Shown = dict[str, Any]


class Races:
    def __init__(
        self,
        records: RaceRecords,
        conversations: Conversations,
        loop: LoopClient | None,
        forks: MachineForks | None,
        clock: Clock,
    ) -> None:
        """Without machines a race is one of words alone; without a loop nobody answers."""
        self._records = records
        self._conversations = conversations
        self._loop = loop
        self._forks = forks
        self._clock = clock

    async def start(
        self,
        operation: OperationId,
        conversation: ConversationId,
        *,
        prompt: str,
        contestants: Sequence[Contestant],
        owner: PrincipalId,
    ) -> Race:
        """The race that this operation makes, begun; running, unless something is away."""
        id = RaceId(derive("race", operation))
        try:
            race = await self._records.get(id)
        except NotFoundError:
            of, now = await self._conversations.get(conversation), to_text(self._clock.now())
            race = await self._records.create(
                Race(
                    id=id,
                    conversation=of.id,
                    at=of.head,
                    prompt=prompt,
                    owner=owner,
                    contestants=tuple(contestants),
                    source=await self._source(of),
                    created_at=now,
                    changed_at=now,
                )
            )
            reach(CrashPoint.RACE_AFTER_RECORD)
        return await self._go_on_if_possible(race)

    async def choose(self, race: RaceId, conversation: str) -> Race:
        """Keep this one, let go of the others: done when it returns, unless something is away."""
        now = to_text(self._clock.now())
        chosen = await self._records.change(race, lambda found: choose(found, conversation, now))
        reach(CrashPoint.RACE_AFTER_CHOICE)
        return await self._go_on_if_possible(chosen)

    async def go_on(self, race: Race) -> Race:
        """What is left to do for it."""
        if race.state == "starting":
            return await self._start_all(race)
        if race.state == "letting_go":
            return await self._let_go_all(race)
        return race

    async def _go_on_if_possible(self, race: Race) -> Race:
        try:
            return await self.go_on(race)
        except OutliveError as error:
            if not error.is_retryable:
                raise
            _log.warning("a race goes on later: %s", error.message, extra={"race": race.id})
            return await self._records.get(race.id)

    # ── start ──

    async def _source(self, of: Conversation) -> RaceSource | None:
        """One checkpoint for all. A conversation whose machine was deleted has none, like one that never had any."""
        if self._forks is None:
            return None
        try:
            found = await self._forks.find_source(of, of.head)
        except ConflictError as error:
            if error.code not in ("fork.no_machine", "fork.machine_deleted"):
                raise
            return None
        return RaceSource(machine=found.machine, checkpoint=found.checkpoint)

    async def _start_all(self, race: Race) -> Race:
        """One that cannot be started for good is out of the race; while something is away, all wait for it."""
        parent = await self._conversations.get(race.conversation)
        troubles: dict[int, str] = {}

        async def start(place: int) -> None:
            try:
                await self._start_one(race, place, parent)
            except OutliveError as error:
                if error.is_retryable:
                    raise
                troubles[place] = error.message

        await _all_at_once(start, range(len(race.contestants)))
        now = to_text(self._clock.now())
        return await self._records.change(race.id, lambda found: started(found, troubles, now))

    async def _start_one(self, race: Race, place: int, parent: Conversation) -> None:
        wanted, operation = race.contestants[place], race.operation(place)
        given = {name: value for name in ("model", "agent") if (value := getattr(wanted, name)) is not None}
        fork = await self._conversations.find_made(operation) or await self._conversations.fork(
            operation,
            parent,
            race.at,
            actor=race.owner,
            metadata={**parent.metadata, "race": race.id},
            **given,
        )
        if fork.archived_at is not None:
            raise ConflictError("race.let_go", "It was let go before it was started.")
        if race.source is not None and self._forks is not None:
            await _copy_machine(self._forks, fork, race.source)
        reach(CrashPoint.RACE_AFTER_FORK)
        sent = await self._conversations.send(operation, fork.id, actor=race.owner, text=race.prompt)
        if self._loop is not None:
            try:
                await self._loop.submit(fork.id, sent.turn)
            except OutliveError as error:  # it is in the log: the sweeper of turns begins it
                _log.warning("the loop was not told: %s", error.message, extra={"conversation": fork.id})

    # ── let go ──

    async def _let_go_all(self, race: Race) -> Race:
        losers = race.losers
        await _all_at_once(lambda place: self._let_go_one(race, losers[place]), range(len(losers)))
        now = to_text(self._clock.now())
        return await self._records.change(race.id, lambda found: let_go(found, now))

    async def _let_go_one(self, race: Race, loser: ConversationId) -> None:
        try:
            found = await self._conversations.get(loser)
        except NotFoundError:
            return  # it was never made
        await self._conversations.archive(loser, actor=race.owner)
        found = await self._conversations.get(loser)
        if found.turn is not None and self._loop is not None:
            reason = f"Another contestant of {race.id} was chosen."
            await self._loop.interrupt(loser, found.turn, by=race.owner, reason=reason)
        reach(CrashPoint.RACE_AFTER_STOP)
        if self._forks is not None:
            await self._forks.delete_machines(loser)

    # ── show ──

    async def show(self, race: Race) -> Shown:
        """The race as it stands, with what its contestants have come to so far."""
        shown = [await self._show_one(race, place) for place in range(len(race.contestants))]
        is_over = race.state == "running" and all(each["state"] in ("ended", "failed") for each in shown)
        return {
            "id": race.id,
            "conversation": race.conversation,
            "at": race.at,
            "prompt": race.prompt,
            "state": "ended" if is_over else race.state,
            "chosen": race.chosen,
            "contestants": shown,
            "created_by": race.owner,
            "created_at": race.created_at,
        }

    async def _show_one(self, race: Race, place: int) -> Shown:
        wanted, id = race.contestants[place], race.conversations[place]
        try:
            found: Conversation | None = await self._conversations.get(id)
        except NotFoundError:
            found = None
        result = Result() if found is None else await self._result(id, race.at)
        return {
            "number": place + 1,
            "conversation": id,
            "machine": found.machine if found else None,
            "model": (found.model if found else None) or wanted.model,
            "agent": (found.agent if found else None) or wanted.agent,
            "state": _state(race, id, wanted, found, result),
            "outcome": result.outcome,
            "reason": wanted.trouble or result.reason,
            "answer": result.answer,
            "steps": result.steps,
            "usage": result.usage,
            "cost": result.cost,
        }

    async def _result(self, conversation: ConversationId, at: int) -> Result:
        result = Result()
        while events := await self._conversations.read(conversation, at, PAGE):
            for event in events:
                result.take(event)
            at = events[-1].seq
        return result


async def _copy_machine(forks: MachineForks, fork: Conversation, source: RaceSource) -> None:
    try:
        await forks.give_machine(fork, Source(source.machine, source.checkpoint))
    except NotFoundError as error:
        if error.code != "checkpoint.unknown":
            raise
        await forks.give_machine(fork)  # it was pruned meanwhile: take the nearest there is


def _state(race: Race, id: str, wanted: Contestant, found: Conversation | None, result: Result) -> str:
    if race.chosen is not None:
        return "chosen" if id == race.chosen else "let_go"
    if wanted.trouble is not None:
        return "failed"
    if found is None or result.turn is None:
        return "starting"
    if result.outcome is None:
        return "waiting" if found.state == "waiting" else "running"
    return "ended"


async def _all_at_once(act: Callable[[int], Awaitable[None]], places: Sequence[int]) -> None:
    """All of them, to their ends; then the first error, if there was one: nobody is cut off by a neighbour."""
    failed: list[OutliveError] = []

    async def guarded(place: int) -> None:
        try:
            await act(place)
        except OutliveError as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        for place in places:
            group.start_soon(guarded, place)
    if failed:
        raise failed[0]
