"""Giving a conversation a machine that somebody made for it: its agent works there from then on; and letting go what
was made beside it, and that nobody will look at again.
"""

import logging
from contextlib import suppress
from typing import get_args

from outlive.base import ConflictError, ConversationId, NotFoundError, OperationId, OutliveError, to_text
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import MachineAttached, NewEvent
from outlive.conversation.log import ARCHIVED, HAS_MACHINE, Append
from outlive.loop.machine_forks import attached_key
from outlive.loop.spare_machines import is_made_by, spare_of
from outlive.loop.unnamed_machines import YOUNG, let_go_unnamed
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import MachineFilter, Records
from outlive.machine.status import Machine, State

_MACHINES = 100  # of one conversation that are looked at

_log = logging.getLogger(__name__)


class Attacher:
    def __init__(self, conversations: Conversations, keeper: MachineKeeper, records: Records) -> None:
        self._conversations = conversations
        self._keeper = keeper
        self._records = records

    async def check(self, conversation: ConversationId, operation: OperationId) -> None:
        """That it may be given a machine, before that is made. If this operation has made it already it was open then,
        and `attach` says what became of it."""
        of = await self._conversations.get(conversation)
        if of.archived_at is None:
            return
        made = await self._records.machines.list(MachineFilter(conversation=of.id), limit=_MACHINES)
        if not any(is_made_by(operation, each) for each in made):
            raise ConflictError(
                ARCHIVED,
                f"Conversation {of.id!r} is archived and gets no machine; make one without it, or fork it.",
            )

    async def attach(self, conversation: ConversationId, machine: Machine, *, actor: str) -> None:
        """Unless it has one: that is not taken away. Once, however often it is asked for. One that was archived
        meanwhile is refused, and its machine goes."""
        attached = NewEvent(MachineAttached(machine=machine.id), to_text(self._conversations.clock.now()))
        key = attached_key(machine.id)
        try:
            await self._conversations.append(Append(conversation, (attached,), key=key, actor=actor))
        except ConflictError as error:
            if error.code == HAS_MACHINE:
                return
            if error.code == ARCHIVED:
                with suppress(NotFoundError):  # it was deleted already
                    await self._keeper.do(machine.id, "delete")
            raise
        await self.delete_spare(conversation)

    async def delete_spare(self, conversation: ConversationId) -> int:
        """How many were deleted of those that it made itself and that its log never named, though it has another or is
        over. Whoever made one just now and is about to name it is refused by the log; nothing was done in any."""
        of, records = await self._conversations.get(conversation), self._records.machines
        known = await records.list(MachineFilter(conversation=of.id, states=get_args(State)), limit=_MACHINES)
        spare = spare_of(of, known)
        clock, deleted = self._conversations.clock, 0
        spare = [each for each in spare if not each.is_gone and clock.now() - each.created_at <= YOUNG]
        named = await self._named(of.id) if spare else set[str]()
        for machine in spare:
            try:
                if machine.id not in named:
                    deleted += await let_go_unnamed(self._keeper, self._records, clock, machine)
            except OutliveError as error:  # the sweeper does it later
                _log.warning("a spare machine is still there: %s", error.message, extra={"machine": machine.id})
        return deleted

    async def _named(self, conversation: ConversationId) -> set[str]:
        """Every machine that it ever had."""
        named, after = set[str](), 0
        while page := await self._conversations.read(conversation, after, PAGE):
            named |= {event.data["machine"] for event in page if event.type == "machine.attached"}
            after = page[-1].seq
        return named
