"""The front door to machines: what the API, the command and the loop ask for. Decides with `lifecycle`, acts by records
and the settler; never talks to a sandbox.

Callers coalesce: whatever many ask of one machine at once is written into its record, and one run of its workflow does
it for all of them.
"""

from collections.abc import Sequence
from typing import Protocol

import anyio

from outlive.base import (
    CheckpointId,
    Clock,
    ConflictError,
    ConversationId,
    DeadlineError,
    MachineId,
    NotFoundError,
    OperationId,
    OutliveError,
    PrincipalId,
    UnavailableError,
)
from outlive.machine import lifecycle
from outlive.machine.lifecycle import Verb
from outlive.machine.records import MachineRecords
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Desired, Machine

SETTLE_WITHIN_S = 300.0
FORK_LIMIT = 32
_RUNS = 4  # of the workflow: what is asked while one run ends is done by the next

_REACHED: dict[Verb, Desired] = {
    "pause": "paused",
    "resume": "running",
    "hibernate": "hibernated",
    "wake": "running",
    "exec": "running",
    "delete": "deleted",
}


def hibernated_meanwhile(machine: MachineId) -> UnavailableError:
    """Nothing was begun in it. Whoever asks again wakes it."""
    return UnavailableError("machine.hibernated", f"Machine {machine!r} was hibernated meanwhile; ask again.")


class Settler(Protocol):
    async def settle(self, machine: MachineId) -> None:
        """Have done what is wanted of this machine: joins a run that is under way, or starts one; returns when that
        run is over. `unavailable` if there is nobody to do it."""
        ...


class MachineKeeper:
    def __init__(self, machines: MachineRecords, settler: Settler, clock: Clock) -> None:
        self._machines = machines
        self._settler = settler
        self._clock = clock

    async def create(
        self,
        machine: MachineId,
        *,
        owner: PrincipalId,
        environment: str,
        spec: MachineSpec,
        name: str | None = None,
        conversation: ConversationId | None = None,
        origin: CheckpointId | None = None,
        has_memory: bool = True,
    ) -> Machine:
        """A machine that is up. With an id that is there already: that one. `has_memory`: whether it is born with the
        memory of its origin, or booted from its filesystem alone."""
        now = self._clock.now()
        made = await self._machines.create(
            Machine(
                id=machine,
                owner=owner,
                environment=environment,
                spec=spec,
                name=name,
                conversation=conversation,
                origin=origin,
                is_memory_doubtful=not has_memory,
                created_at=now,
                changed_at=now,
            )
        )
        if made.state == "starting":
            made = await self._settle(machine, "running")
        return made

    async def claim(
        self,
        pool: str,
        operation: OperationId,
        *,
        owner: PrincipalId,
        environment: str,
        name: str | None = None,
        conversation: ConversationId | None = None,
    ) -> Machine | None:
        """A machine that was made beforehand for this pool and is up; None if there is none. The same operation again
        gets the same machine."""
        fields = {
            "owner": owner,
            "environment": environment,
            "name": name,
            "conversation": conversation,
            "changed_at": self._clock.now(),
        }
        return await self._machines.claim_warm(pool, lambda _: lifecycle.Change(fields), operation=operation)

    async def release(self, machine: MachineId) -> None:
        """Delete it if it still waits in a pool. Whoever has claimed it meanwhile keeps it."""
        now = self._clock.now()
        found = await self._machines.change(
            machine, lambda record: lifecycle.ask(record, "delete", now) if record.is_warm else lifecycle.NO_CHANGE
        )
        if found.is_warm and found.state != "deleted":
            await self._settle(machine, "deleted")

    async def find(self, machine: MachineId) -> Machine:
        """Also one that was deleted: its record stays."""
        return await self._machines.get(machine)

    async def get(self, machine: MachineId) -> Machine:
        """`machine.deleted` for one that was deleted."""
        found = await self.find(machine)
        if found.state == "deleted":
            raise NotFoundError("machine.deleted", f"Machine {machine!r} was deleted.")
        return found

    async def do(self, machine: MachineId, verb: Verb) -> Machine:
        """Ask for it, and return when it is so."""
        now = self._clock.now()
        found = await self._machines.change(machine, lambda record: lifecycle.ask(record, verb, now))
        desired = _REACHED[verb]
        if found.state == desired and found.is_settled:
            return found
        return await self._settle(machine, desired)

    async def ensure_awake(self, machine: MachineId) -> Machine:
        """For a caller who is about to use it. Costs one read while it is running. `machine.hibernated` (unavailable)
        if somebody has put it to sleep again meanwhile: ask again."""
        found = await self._machines.get(machine)
        if found.state == "running" and found.desired == "running":
            return found
        if found.state == "starting" and found.desired == "running":
            return await self._settle(machine, "running")
        return await self.do(machine, "exec")

    async def checkpoint(self, machine: MachineId) -> CheckpointId:
        """The id of a checkpoint that was begun after this was called; of a hibernated one, its newest."""
        return await self._checkpoint(machine, "checkpoint")

    async def fork(
        self, machine: MachineId, children: Sequence[MachineId], *, owner: PrincipalId, name: str | None = None
    ) -> Sequence[Machine]:
        """Copies of a live machine, memory included, each with an id of its own."""
        parent = await self.get(machine)
        checkpoint = await self._checkpoint(machine, "fork")
        made: dict[MachineId, Machine] = {}
        failed: list[OutliveError] = []

        async def create(child: MachineId) -> None:
            try:
                made[child] = await self.create(
                    child,
                    owner=owner,
                    environment=parent.environment,
                    spec=parent.spec,
                    name=name,
                    conversation=parent.conversation,
                    origin=checkpoint,
                )
            except OutliveError as error:  # not through the task group, which would wrap it and stop the others
                failed.append(error)

        async with anyio.create_task_group() as group:
            for child in children:
                group.start_soon(create, child)
        if failed:
            raise failed[0]
        return [made[child] for child in children]

    async def _checkpoint(self, machine: MachineId, verb: Verb) -> CheckpointId:
        now = self._clock.now()
        found = await self._machines.change(machine, lambda record: lifecycle.ask(record, verb, now))
        wanted = found.checkpoints_wanted
        if found.checkpoints_made < wanted and lifecycle.next_step(found, is_node_gone=False) is not None:
            found = await self._settle(machine, None, checkpoints=wanted)
        if found.checkpoint is None:
            raise ConflictError("machine.not_saved", f"Machine {machine!r} has no checkpoint: {found.reason}.")
        return found.checkpoint

    async def _settle(self, machine: MachineId, desired: Desired | None, *, checkpoints: int = 0) -> Machine:
        """Until it is so, or the work that was to bring it there has given up."""
        found = await self._machines.get(machine)
        with anyio.move_on_after(SETTLE_WITHIN_S):
            for _ in range(_RUNS):
                await self._settler.settle(machine)
                found = await self._machines.get(machine)
                if _is_so(found, desired, checkpoints) or not _is_wanted(found, desired, checkpoints):
                    break
        if _is_so(found, desired, checkpoints):
            return found
        if _is_wanted(found, desired, checkpoints):
            raise DeadlineError("machine.not_settled", f"Machine {machine!r} is still {found.state}; ask again.")
        # One that could not be woken is to stay hibernated too, and says why.
        if desired == "running" and found.desired == "hibernated" and found.reason is None:
            raise hibernated_meanwhile(machine)
        if found.state == "lost" and found.checkpoint is not None:
            raise ConflictError(
                "machine.not_reached",
                f"Machine {machine!r} is lost ({found.reason}) and stays so: resume or wake brings it back from its "
                "checkpoint.",
            )
        why = f": {found.reason}" if found.reason else " by somebody else's wish; ask again."
        raise ConflictError("machine.not_reached", f"Machine {machine!r} is {found.state}{why}")


def _is_so(machine: Machine, desired: Desired | None, checkpoints: int) -> bool:
    return (desired is None or machine.state == desired) and machine.checkpoints_made >= checkpoints


def _is_wanted(machine: Machine, desired: Desired | None, checkpoints: int) -> bool:
    """Whether it is still wanted: somebody may have asked for something else meanwhile, or it was given up. One that is
    lost stays so (what is to stand still is not woken for that) unless it is wanted running and has a checkpoint."""
    if machine.state == "lost" and lifecycle.next_step(machine, is_node_gone=False) is None:
        return False
    return (desired is None or machine.desired == desired) and machine.checkpoints_wanted >= checkpoints
