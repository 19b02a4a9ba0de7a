"""Finishes forks that were cut off between the copy of the machine and the word to the log, and that nobody asks for
again; and deletes machines that were made for a conversation that has another by now, or is over. Runs in every worker:
doing it twice, or beside whoever began it, is harmless.
"""

import logging
from datetime import timedelta

import anyio

from outlive.base import Clock, ConversationId, MachineId, OutliveError
from outlive.conversation.conversations import Conversations
from outlive.loop.attaching import Attacher
from outlive.loop.machine_forks import MachineForks, machine_of
from outlive.loop.spare_machines import first_of, is_made_by
from outlive.machine.records import MachineFilter, MachineRecords
from outlive.machine.status import Machine

SETTLE_S = 3.0  # that whoever made the copy has to say so itself
YOUNG_S = 3_600.0  # a copy that is older was finished long ago
_PAGE = 200

_log = logging.getLogger(__name__)


class ForkSweeper:
    def __init__(
        self,
        forks: MachineForks,
        attacher: Attacher,
        conversations: Conversations,
        machines: MachineRecords,
        clock: Clock,
        *,
        every_s: float,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._forks = forks
        self._attacher = attacher
        self._conversations = conversations
        self._machines = machines
        self._clock = clock
        self._every_s = every_s
        self._settle = timedelta(seconds=settle_s)

    async def run(self) -> None:
        """Look at once and then every so often, for ever."""
        while True:
            try:
                await self.sweep()
            except OutliveError as error:
                _log.warning("unfinished forks were not looked for: %s", error.message)
            await anyio.sleep(self._every_s)

    async def sweep(self) -> int:
        """How many were finished, or let go. Of machines that are young, or beside a young one."""
        now, finished, before = self._clock.now(), 0, None
        while page := await self._machines.list(MachineFilter(), limit=_PAGE, before=before):
            for machine in page:
                age = now - machine.created_at
                if age > timedelta(seconds=YOUNG_S):
                    return finished
                if age > self._settle and machine.conversation is not None:
                    finished += await self._finish(machine) if _may_be_unfinished(machine) else 0
                    finished += await self._delete_spare(machine, machine.conversation)
            before = MachineId(page[-1].id)
        return finished

    async def _finish(self, machine: Machine) -> int:
        assert machine.conversation is not None
        try:
            fork = await self._conversations.get(machine.conversation)
            if await self._forks.end_with_child(fork):
                return 0
            if fork.machine is not None or fork.parent is None or await self._forks.origin_of(machine) is None:
                return 0
            if fork.archived_at is not None or machine.is_gone:
                await self._forks.let_go(fork, machine)
            else:
                await self._forks.give_machine(fork)
        except OutliveError as error:
            _log.warning("a fork was not finished: %s", error.message, extra={"conversation": machine.conversation})
            return 0
        _log.info("a fork was finished", extra={"conversation": machine.conversation, "machine": machine.id})
        return 1

    async def _delete_spare(self, machine: Machine, conversation: ConversationId) -> int:
        try:
            of = await self._conversations.get(conversation)
            if of.machine == machine.id and is_made_by(first_of(of), machine):
                return 0  # as nearly all are
            return await self._attacher.delete_spare(conversation)
        except OutliveError as error:
            _log.warning("spare machines were not deleted: %s", error.message, extra={"conversation": conversation})
            return 0


def _may_be_unfinished(machine: Machine) -> bool:
    return machine.conversation is not None and machine.id == machine_of(machine.conversation) and bool(machine.origin)
