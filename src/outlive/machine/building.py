"""Building an environment: its `install` commands in a machine of their own, then its services in another, saved while
they run. Machines of the environment are born from that checkpoint.

    install machine (writable, root) ─ commands, once each ─ its filesystem ─┐
    service machine (as defined): booted from it, services up, ports listen ─┴─ checkpoint, memory included

Rule 1: machines and commands have ids made from (digest, try, number). A build that is begun again, by whoever, finds
        them: nothing is installed twice.
Rule 2: services start in the second machine as after any cold boot, by its node: what is saved was seen to work.
Rule 3: a failed build says which command, its exit code and the end of what it printed; it is tried again only when
        somebody asks.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from outlive.base import (
    CheckpointId,
    Clock,
    ConflictError,
    EffectId,
    MachineId,
    NotFoundError,
    OutliveError,
    PrincipalId,
    derive_machine_id,
)
from outlive.machine import environments
from outlive.machine.build_log import BuildLog, CommandOutput, log_key
from outlive.machine.caller import MachineCaller
from outlive.machine.door import ExecRequest
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import Records
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Effect, Environment
from outlive.storage.objects import ObjectStore

# Whose machines nobody's are: those of a build and those in a pool.
HOUSE: Final = PrincipalId("prin_" + "0" * 32)

INSTALL_WITHIN_S = 3_600.0  # one command
PORTS_WITHIN_S = 120.0
_PORTS_EVERY_S = 0.1
_HISTORY = 1_000  # lines of a build machine's history
_END_OF_OUTPUT = 2_000  # characters that a failed build's reason holds


class EnvironmentBuilding:
    def __init__(
        self, records: Records, keeper: MachineKeeper, caller: MachineCaller, objects: ObjectStore, clock: Clock
    ) -> None:
        self._records = records
        self._keeper = keeper
        self._caller = caller
        self._objects = objects
        self._clock = clock

    async def build(self, digest: str, tries: int) -> None:
        """Until it is ready, or failed for good: both are in its record. Raises what is worth trying again."""
        found = await self._records.environments.get(digest)
        if not environments.is_being_built(found, tries):
            return
        log = BuildLog(self._objects, log_key(digest, tries))
        await log.flush()  # before the record names it: whoever reads that finds it
        await self._begin(found)
        outcome: CheckpointId | OutliveError
        async with anyio.create_task_group() as group:
            group.start_soon(log.keep)
            try:
                outcome = await self._make(found, log)
            except OutliveError as error:  # not through the task group, which would wrap it
                outcome = error
            group.cancel_scope.cancel()
        if not environments.is_being_built(await self._records.environments.get(digest), tries):
            return  # it was ended meanwhile, and so was its log
        log.say(_last_word(outcome))
        await log.flush()
        if not isinstance(outcome, OutliveError):
            await self._end(found, outcome)
        elif outcome.is_retryable:
            raise outcome
        else:
            await self.give_up(digest, tries, outcome.message)

    async def give_up(self, digest: str, tries: int, reason: str) -> None:
        now = self._clock.now()
        await self._records.environments.change(
            digest, lambda known: environments.failed(known, tries, reason[: 2 * _END_OF_OUTPUT], now)
        )

    async def clean_up(self, digest: str, tries: int) -> None:
        """Delete the machines of a build that is over. What the environment needs of them stays."""
        found = await self._records.environments.get(digest)
        if environments.is_being_built(found, tries):
            return
        for machine in reversed(build_machines(found, tries)):  # the second was born from the first
            try:
                await self._keeper.do(machine, "delete")
            except NotFoundError:
                continue

    # ── the record ──

    async def _begin(self, found: Environment) -> None:
        key, now = log_key(found.digest, found.tries), self._clock.now()
        await self._records.environments.change(found.digest, lambda known: environments.begun(known, key, now))

    async def _end(self, found: Environment, checkpoint: CheckpointId) -> None:
        now = self._clock.now()
        await self._records.environments.change(
            found.digest, lambda known: environments.built(known, found.tries, checkpoint, now)
        )

    # ── the machines ──

    async def _make(self, found: Environment, log: BuildLog) -> CheckpointId:
        definition = EnvironmentDefinition.model_validate(found.definition)
        installing, serving = build_machines(found, found.tries)
        installed = None
        if not await self._is_there(serving) and definition.install:
            await self._create(installing, found, install_spec(definition))
            for number, command in enumerate(definition.install):
                await self._run(installing, effect_of(found, number), command, log)
            await self._check_whole(installing)
            installed = await self._keeper.checkpoint(installing)
        log.say(f"Starting it{' with its services' if definition.start else ''}.")
        await log.flush()  # once that machine is there nobody says again what installing said
        await self._create(serving, found, definition.to_spec(), installed)
        await self._wait_for_ports(serving, definition.ports)
        saved = await self._keeper.checkpoint(serving)
        if not (await self._records.checkpoints.get(saved)).has_memory:
            log.say("Its memory could not be saved: machines of it are booted, and start their services anew.")
        return saved

    async def _create(
        self, machine: MachineId, found: Environment, spec: MachineSpec, origin: CheckpointId | None = None
    ) -> None:
        await self._keeper.create(
            machine,
            owner=HOUSE,
            environment=found.name,
            spec=spec,
            name=f"build of {found.name}",
            origin=origin,
            has_memory=False,  # what installed has nothing to do with what serves
        )

    async def _run(self, machine: MachineId, effect: EffectId, command: str, log: BuildLog) -> None:
        log.say(f"$ {command}")
        request = ExecRequest(effect_id=effect, command=command, user="root", timeout_s=INSTALL_WITHIN_S)
        output = CommandOutput(log)
        async for told in self._caller.follow(machine, request):
            if isinstance(told, Effect):
                output.end(told)
                _check(command, told)
            else:
                output.take(told)

    async def _check_whole(self, machine: MachineId) -> None:
        """A machine that came back from an older checkpoint no longer holds what the journal says was done."""
        history = await self._records.machines.events(machine, after=0, limit=_HISTORY)
        if any(event.kind == "rolled_back" for _, event in history):
            raise ConflictError(
                "environment.rolled_back", "The machine of the build was lost meanwhile; build it again."
            )

    async def _wait_for_ports(self, machine: MachineId, ports: Sequence[int]) -> None:
        missing = set(ports)
        with anyio.move_on_after(PORTS_WITHIN_S):
            while missing:
                found = await self._caller.use(machine, lambda generation: self._caller.door.ports(machine, generation))
                missing = set(ports) - set(found)
                if missing:
                    await anyio.sleep(_PORTS_EVERY_S)
        if missing:
            told = ", ".join(str(port) for port in sorted(missing))
            raise ConflictError(
                "environment.no_port", f"After {PORTS_WITHIN_S:g} s nothing listens on {told}; look at `start`."
            )

    async def _is_there(self, machine: MachineId) -> bool:
        try:
            await self._records.machines.get(machine)
        except NotFoundError:
            return False
        return True


# ── pure ──


def build_machines(found: Environment, tries: int) -> tuple[MachineId, MachineId]:
    """Where it is installed, and where its services are started."""
    at = found.created_at
    return derive_machine_id(at, f"{found.digest} {tries} 1"), derive_machine_id(at, f"{found.digest} {tries} 2")


def effect_of(found: Environment, number: int) -> EffectId:
    return EffectId(f"install-{found.digest}-{found.tries}-{number}")


def install_spec(definition: EnvironmentDefinition) -> MachineSpec:
    """As its machines will be, but writable, and without services: they may need what is not installed yet."""
    return definition.to_spec().model_copy(update={"start": (), "ports": (), "is_read_only": False})


def _last_word(outcome: CheckpointId | OutliveError) -> str:
    if not isinstance(outcome, OutliveError):
        return f"Ready: {outcome}"
    return f"Not now: {outcome.message} It is tried again." if outcome.is_retryable else f"Failed: {outcome.message}"


def _check(command: str, effect: Effect) -> None:
    if effect.state == "finished" and effect.exit_code == 0:
        return
    printed = (effect.stdout + effect.stderr).rstrip()[-_END_OF_OUTPUT:]
    match effect.state:
        case "timeout":
            trouble = f"did not end within {INSTALL_WITHIN_S:g} s"
        case "lost":
            trouble = "was lost with its machine; build it again"
        case _:
            trouble = f"ended with exit code {effect.exit_code}"
    told = f"`{command[:500]}` {trouble}" + (f":\n{printed}" if printed else ".")
    raise ConflictError("environment.install_failed", told)
