"""Forks of conversations that take their machine along: a copy of it, from the checkpoint nearest to the event.

Rule 1: all ids are given by the operation: conversation and machine have its digits. So a fork that was cut off
        anywhere is found again by its ids, by whoever asks again or by the sweeper, and nothing is made twice.
Rule 2: what is in between is said: `machine.attached`, `machine.forked` and, for what the copy lacks,
        `machine.rolled_back`, in one batch, once the copy is up. All of it follows from records that do not change.
Rule 3: a fork whose machine cannot be brought up leaves nothing: the machine is deleted, the conversation archived.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NamedTuple

from outlive.base import (
    CheckpointId,
    Clock,
    ConflictError,
    ConversationId,
    CrashPoint,
    EffectId,
    MachineId,
    NotFoundError,
    OperationId,
    OutliveError,
    PrincipalId,
    derive,
    reach,
    to_text,
)
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import (
    Event,
    EventData,
    MachineAttached,
    MachineForked,
    MachineRebooted,
    MachineRolledBack,
    NewEvent,
)
from outlive.conversation.log import ARCHIVED, HAS_MACHINE, Append, Conversation
from outlive.loop.fork_facts import Told, nearest, rolled_back_before
from outlive.loop.subagents.link import link_of, turn_of
from outlive.loop.tools.checkout import checkout_id
from outlive.loop.unnamed_machines import let_go_unnamed
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import MachineFilter, Records
from outlive.machine.status import Checkpoint, Effect, Machine, MachineEvent

_STREAK = 16  # effects in a row on one side of a mark: those beyond are on the same side (at most 8 run at once)
_HISTORY_PAGE = 500
_MACHINES = 100  # of one conversation that are deleted at once


class Source(NamedTuple):
    """What a fork's machine is made from: a machine, and a checkpoint of it."""

    machine: MachineId
    checkpoint: CheckpointId


class MachineForks:
    def __init__(self, conversations: Conversations, keeper: MachineKeeper, records: Records, clock: Clock) -> None:
        self._conversations = conversations
        self._keeper = keeper
        self._records = records
        self._clock = clock

    async def fork(
        self, operation: OperationId, parent: ConversationId, *, at: int | None, actor: PrincipalId, **given: Any
    ) -> Conversation:
        """A fork at event `at` (None: at its head), with a machine of its own that is up."""
        made, source = await self._conversations.find_made(operation), None
        if made is None:
            of = await self._conversations.get(parent)
            if at is None or at <= of.head:  # beyond it there is nothing to fork, which the next line says
                source = await self.find_source(of, at or of.head)
            made = await self._conversations.fork(operation, of, at or of.head, actor=actor, **given)
            reach(CrashPoint.FORK_AFTER_CONVERSATION)
        return await self.give_machine(made, source)

    async def give_machine(self, fork: Conversation, source: Source | None = None) -> Conversation:
        """Make the copy, unless it is there, and tell the log, unless it is told. `source`: None is looked for."""
        if fork.machine is not None:
            return fork
        try:
            if await self._find(fork.id) is None:
                await self._create(fork, source or await self._source_of(fork))
            machine = await self._keeper.ensure_awake(machine_of(fork.id))
        except OutliveError:
            now, found = await self._conversations.get(fork.id), await self._find(fork.id)
            if now.machine is not None:  # somebody was here before, or gave it another
                await self._let_go_beside(now)
                return now
            if found is not None and found.is_gone:
                await self.let_go(fork, found)
            raise
        reach(CrashPoint.FORK_AFTER_MACHINE)
        await self._say(fork, machine)
        return await self._conversations.get(fork.id)

    async def let_go(self, fork: Conversation, machine: Machine) -> None:
        """Of a fork that was not finished and will not be."""
        with suppress(NotFoundError):  # it is deleted already
            await self._keeper.do(machine.id, "delete")
        await self._conversations.archive(fork.id, actor=fork.created_by)

    async def _let_go_beside(self, fork: Conversation) -> None:
        """The copy, if the fork was given another."""
        found = await self._find(fork.id)
        if found is not None and found.id != fork.machine:
            with suppress(OutliveError):  # the sweeper does it later
                await let_go_unnamed(self._keeper, self._records, self._clock, found)

    async def delete_machines(self, conversation: ConversationId) -> None:
        """All that belong to it."""
        for machine in await self._records.machines.list(MachineFilter(conversation=conversation), limit=_MACHINES):
            with suppress(NotFoundError):  # somebody else does the same
                await self._keeper.do(machine.id, "delete")

    async def end_with_child(self, child: Conversation) -> bool:
        """Whether it is a subagent's conversation whose work is done: then the copy that it had is deleted; a machine
        that it keeps sleeps. What was done on its parent's machine is saved with that."""
        link = link_of(child.id, child.metadata)
        if link is None or child.machine is None or child.turn is not None or link.machine == "same":
            return False
        ended = ("turn.finished", turn_of(child.id))
        if not [None async for event in self._events(child.id, 0) if (event.type, event.turn) == ended]:
            return False  # it has not begun
        machine = await self._records.machines.get(MachineId(child.machine))
        if link.machine == "fork" and not link.detached and machine.id == machine_of(child.id):
            if not machine.is_gone:
                await self._keeper.do(machine.id, "delete")
        elif machine.state == "running" and machine.desired == "running":
            await self._keeper.do(machine.id, "hibernate")
        return True

    async def news_of(self, fork: Conversation, machine: Machine) -> tuple[EventData, ...]:
        """What the log of a fork is told of its machine; nothing more than that for one that is no copy."""
        attached = MachineAttached(machine=machine.id)
        origin = await self.origin_of(machine)
        if origin is None:
            return (attached,)
        if fork.parent is None:  # a subagent's: it has no past that the copy could differ from
            return (attached, MachineForked(machine=machine.id, origin=origin.machine, checkpoint=origin.id))
        parent, at = fork.parent
        told = await self._told(parent, at)
        ahead = await self._later(origin.machine, at, origin.effects_mark)
        forked = MachineForked(
            machine=machine.id,
            origin=origin.machine,
            checkpoint=origin.id,
            ahead=[each.id for each in ahead],
        )
        news: list[EventData] = [attached, forked]
        if lacks := await self._lacks(told, origin):
            news.append(MachineRolledBack(machine=machine.id, checkpoint=origin.id, effects=lacks))
        if any(each.kind == "booted" and each.data.get("is_cold") for each in await self._history(machine.id)):
            news.append(MachineRebooted(machine=machine.id))
        return tuple(news)

    async def origin_of(self, machine: Machine) -> Checkpoint | None:
        """The checkpoint of another conversation's machine that it is a copy of; None for one of an environment."""
        if machine.origin is None:
            return None
        origin = await self._records.checkpoints.get(machine.origin)
        return origin if (await self._records.machines.get(origin.machine)).conversation is not None else None

    # ── which checkpoint ──

    async def find_source(self, of: Conversation, at: int) -> Source:
        """The machine that the conversation had at that event, and the checkpoint to copy: of a machine in which no
        later step of the log did anything, one that is made now."""
        told = await self._told(of.id, at)
        if told.machine is None:
            raise ConflictError(
                "fork.no_machine",
                f"At event {at} conversation {of.id!r} has no machine: fork it without one; the first tool makes one.",
            )
        machine = await self._records.machines.get(told.machine)
        if machine.state == "deleted" or machine.desired == "deleted":
            raise ConflictError(
                "fork.machine_deleted",
                f"Machine {machine.id!r}, which the conversation had at event {at}, was deleted: fork without it.",
            )
        later = await self._later(machine.id, at, None)
        if not later:
            return Source(machine.id, await self._keeper.checkpoint(machine.id))
        checkout = await self._records.effects.find(machine.id, checkout_id(of.id, 1))
        found = nearest(
            await self._records.checkpoints.list(machine.id),
            first=checkout.n if checkout else 0,
            last=min(each.n for each in later) - 1,
        )
        if found is None:
            raise ConflictError(
                "fork.no_checkpoint",
                f"Machine {machine.id!r} has no checkpoint yet: fork at the newest event, or without the machine.",
            )
        return Source(machine.id, found.id)

    async def _source_of(self, fork: Conversation) -> Source:
        assert fork.parent is not None
        parent, at = fork.parent
        return await self.find_source(await self._conversations.get(parent), at)

    # ── what lies between ──

    async def _told(self, conversation: ConversationId, at: int) -> Told:
        told = Told()
        async for event in self._events(conversation, 0):
            if event.seq > at:
                break
            told.take(event)
        return told

    async def _later(self, machine: MachineId, at: int, mark: int | None) -> list[Effect]:
        """The effects that steps after event `at` had in this machine: those up to `mark`; without one, the first few.
        They stand in the log of the conversation that the machine is of: up to `at` it is the same log."""
        conversation = (await self._records.machines.get(machine)).conversation
        told, later, streak = Told(machine), list[Effect](), 0
        async for event in self._events(conversation, at):
            before = len(told.effects)
            told.take(event)
            if told.machine != machine or streak >= _STREAK:
                break
            if len(told.effects) == before or not (found := await self._effect(machine, next(reversed(told.effects)))):
                continue
            is_wanted = mark is None or found.n <= mark
            later += [found] if is_wanted else []
            streak = streak + 1 if mark is None or not is_wanted else 0
        return later

    async def _lacks(self, told: Told, origin: Checkpoint) -> list[str]:
        """The effects of earlier steps that are not in the checkpoint, and of which the log does not say so."""
        undone = rolled_back_before(await self._history(origin.machine), origin.id)
        lacks: list[str] = []
        streak = 0
        for effect in reversed(told.effects):
            found = await self._effect(origin.machine, effect)
            if found is None or found.is_forestalled or effect in told.gone:
                continue
            if found.n > origin.effects_mark or effect in undone:
                lacks.append(effect)
                streak = 0
            elif (streak := streak + 1) >= _STREAK and not undone:
                break
        return lacks[::-1]

    async def _effect(self, machine: MachineId, effect: EffectId) -> Effect | None:
        return await self._records.effects.find(machine, effect)

    async def _events(self, conversation: ConversationId | None, after: int) -> AsyncIterator[Event]:
        while conversation is not None and (page := await self._conversations.read(conversation, after, PAGE)):
            for event in page:
                yield event
            after = page[-1].seq

    async def _history(self, machine: MachineId) -> list[MachineEvent]:
        history: list[MachineEvent] = []
        while page := await self._records.machines.events(machine, after=len(history), limit=_HISTORY_PAGE):
            history += [event for _, event in page]
        return history

    # ── the copy ──

    async def _find(self, fork: ConversationId) -> Machine | None:
        try:
            return await self._records.machines.get(machine_of(fork))
        except NotFoundError:
            return None

    async def _create(self, fork: Conversation, source: Source) -> Machine:
        origin = await self._records.checkpoints.get(source.checkpoint)
        parent = await self._records.machines.get(source.machine)
        return await self._keeper.create(
            machine_of(fork.id),
            owner=PrincipalId(fork.created_by),
            environment=parent.environment,
            spec=parent.spec,
            conversation=fork.id,
            origin=origin.id,
            has_memory=origin.has_memory,
        )

    async def _say(self, fork: Conversation, machine: Machine) -> None:
        at = to_text(self._clock.now())
        news = tuple(NewEvent(each, at) for each in await self.news_of(fork, machine))
        try:
            await self._conversations.append(Append(fork.id, news, key=attached_key(machine.id), actor=machine.id))
        except ConflictError as error:
            if error.code == HAS_MACHINE:  # somebody gave it another meanwhile: nobody needs the copy
                await self._let_go_beside(await self._conversations.get(fork.id))
            elif error.code == ARCHIVED:
                await self.let_go(fork, machine)
                raise
            elif error.code != "append.key_reused":  # somebody was here before, and said it
                raise


def machine_of(conversation: ConversationId) -> MachineId:
    """The first machine of a conversation: it has its digits."""
    return MachineId(derive("mach", conversation))


def attached_key(machine: MachineId) -> str:
    """Of the batch that says that a machine is the conversation's: said once."""
    return f"machine/{machine}/attached"
