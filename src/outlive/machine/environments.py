"""The front door to environments: define, look up, and make machines of them. Decides little, acts by records, the
builder and the keeper of machines.

Rule 1: a definition is known by its digest. The same one again is the same build; another one under a name replaces
        what the name stands for, and machines made before keep what they were made from.
Rule 2: one request makes one machine, however often it is run again: the one that it made, or the one that it claimed.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from outlive.base import (
    CheckpointId,
    Clock,
    ConflictError,
    ConversationId,
    DeniedError,
    MachineId,
    NotFoundError,
    OperationId,
    PrincipalId,
    UnavailableError,
    derive,
)
from outlive.machine.base import parse_reference
from outlive.machine.environment import DEFAULT_NAME, EnvironmentDefinition
from outlive.machine.keeper import MachineKeeper
from outlive.machine.records import EnvironmentRecords
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Environment, Machine

_BUILDING_S = 5.0  # after which it is worth asking again

# There without being defined; a definition of the same name takes their place.
BUILT_IN = {
    DEFAULT_NAME: EnvironmentDefinition(name=DEFAULT_NAME),
    "debian": EnvironmentDefinition(name="debian", base="debian"),
    "host": EnvironmentDefinition(name="host", base="host"),
}

ReadLog = Callable[[str], Awaitable[bytes]]


class Builder(Protocol):
    async def build(self, digest: str, tries: int) -> None:
        """Have it built: joins a build that is under way, or starts one. Does not wait for it. `unavailable` if there
        is nobody to do it."""
        ...


class Recipe(NamedTuple):
    """What a machine is made from."""

    spec: MachineSpec
    origin: CheckpointId | None  # None: the base of its spec
    pool: str | None  # where machines of it may wait; None: nowhere


class Environments:
    def __init__(
        self,
        records: EnvironmentRecords,
        keeper: MachineKeeper,
        builder: Builder,
        read_log: ReadLog,
        clock: Clock,
        *,
        base_paths: Sequence[Path] = (),
    ) -> None:
        """`base_paths`: the folders of a host that bases may be taken from."""
        self._records = records
        self._keeper = keeper
        self._builder = builder
        self._read_log = read_log
        self._clock = clock
        self._base_paths = base_paths

    async def define(self, definition: EnvironmentDefinition) -> Environment:
        """From now on its name stands for this. It is built if it was not before, or if that failed; this does not
        wait for it."""
        check_base(definition.base, self._base_paths)
        now = self._clock.now()
        made = new_environment(definition, now)
        await self._records.put(made)
        found = await self._records.change(made.digest, lambda known: defined_again(known, definition.warm, now))
        if found.state == "building":
            await self._builder.build(found.digest, found.tries)
        return found.model_copy(update={"name": definition.name})

    async def get(self, name: str) -> Environment:
        """`environment.unknown` (not_found) if there is none of this name or digest."""
        try:
            return await self._records.get(name)
        except NotFoundError:
            if name not in BUILT_IN:
                raise
            return self._built_in(name)

    async def list(self) -> Sequence[Environment]:
        """By name, those that are there without being defined included."""
        known = {found.name: found for found in await self._records.list()}
        known = {name: self._built_in(name) for name in BUILT_IN} | known
        return [known[name] for name in sorted(known)]

    async def log(self, name: str) -> bytes:
        """What its newest build has said so far. `environment.no_log` if none has begun."""
        found = await self.get(name)
        if found.log_key is None:
            why = "its build has not begun" if found.state == "building" else "nothing was built for it"
            raise NotFoundError("environment.no_log", f"Environment {name!r} has no log: {why}.")
        return await self._read_log(found.log_key)

    async def resolve(self, name: str) -> Recipe:
        """What a machine of this environment is made from. `environment.building` (unavailable) until it is built,
        `environment.failed` (conflict) if it could not be."""
        found = await self.get(name)
        if found.state == "building":
            raise UnavailableError(
                "environment.building",
                f"Environment {name!r} is still being built; ask again.",
                retry_after_s=_BUILDING_S,
            )
        if found.state == "failed":
            raise ConflictError("environment.failed", f"Environment {name!r} could not be built; see its log.")
        definition = EnvironmentDefinition.model_validate(found.definition)
        return Recipe(definition.to_spec(), found.checkpoint, found.digest)

    async def create_machine(
        self,
        operation: OperationId,
        *,
        environment: str,
        owner: PrincipalId,
        name: str | None = None,
        conversation: ConversationId | None = None,
    ) -> Machine:
        """A machine that is up: one that waits for it, else a new one. The same operation again: the same machine."""
        machine = MachineId(derive("mach", operation))
        recipe = await self.resolve(environment)
        if recipe.pool is not None and not await self._is_there(machine):
            claimed = await self._keeper.claim(
                recipe.pool,
                operation,
                owner=owner,
                environment=environment,
                name=name,
                conversation=conversation,
            )
            if claimed is not None:
                return claimed
        return await self._keeper.create(
            machine,
            owner=owner,
            environment=environment,
            spec=recipe.spec,
            name=name,
            conversation=conversation,
            origin=recipe.origin,
        )

    async def _is_there(self, machine: MachineId) -> bool:
        try:
            await self._keeper.get(machine)
        except NotFoundError as error:
            return error.code == "machine.deleted"
        return True

    def _built_in(self, name: str) -> Environment:
        return new_environment(BUILT_IN[name], self._clock.now())


def check_base(base: str, allowed: Sequence[Path]) -> None:
    """Pure. That this is a base, and that no definition makes machines of whatever is on a host's disk."""
    path = parse_reference(base).path
    if path is not None and not any(path.is_relative_to(folder) for folder in allowed):
        raise DeniedError(
            "environment.base_denied",
            f"The base {base!r} is on the host's own disk, outside of what the setting machines.base_paths allows.",
        )


# ── what becomes of a record: pure ──


def new_environment(definition: EnvironmentDefinition, now: datetime) -> Environment:
    return Environment(
        name=definition.name,
        digest=definition.digest(),
        definition=definition.model_dump(mode="json"),
        state="building" if definition.needs_build else "ready",
        tries=1 if definition.needs_build else 0,
        warm=definition.warm,
        created_at=now,
        changed_at=now,
    )


def defined_again(found: Environment, warm: int, now: datetime) -> Environment:
    """The same definition was given again: what failed is tried again, and the pool is as large as was said last."""
    news: dict[str, object] = {}
    if found.warm != warm:
        news["warm"] = warm
    if found.state == "failed":
        news |= {"state": "building", "tries": found.tries + 1, "reason": None, "log_key": None}
    return found.model_copy(update={**news, "changed_at": now}) if news else found


def begun(found: Environment, log_key: str, now: datetime) -> Environment:
    return found if found.log_key == log_key else found.model_copy(update={"log_key": log_key, "changed_at": now})


def built(found: Environment, tries: int, checkpoint: CheckpointId, now: datetime) -> Environment:
    if not is_being_built(found, tries):
        return found
    return found.model_copy(update={"state": "ready", "checkpoint": checkpoint, "reason": None, "changed_at": now})


def failed(found: Environment, tries: int, reason: str, now: datetime) -> Environment:
    if not is_being_built(found, tries):
        return found
    return found.model_copy(update={"state": "failed", "reason": reason, "changed_at": now})


def is_being_built(found: Environment, tries: int) -> bool:
    """Whether this very try is the one that counts."""
    return found.state == "building" and found.tries == tries
