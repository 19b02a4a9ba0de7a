"""What is known of a machine: one record, changed only through the pure functions of `lifecycle`.

Rule 1: a record never says more than is known. `node` and `generation` are set before a sandbox is started, so that
        whatever a crash leaves behind can be told from the one that counts.
Rule 2: `generation` grows with every boot and every restore; nothing done in the name of an older one is recorded.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from outlive.base import (
    CheckpointId,
    ConversationId,
    EffectId,
    MachineId,
    NodeId,
    OperationId,
    PrincipalId,
    TerminalId,
)
from outlive.machine.spec import MachineSpec

State = Literal["starting", "running", "paused", "hibernated", "lost", "deleted"]
Desired = Literal["running", "paused", "hibernated", "deleted"]


class Machine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: MachineId
    name: str | None = None
    owner: PrincipalId
    conversation: ConversationId | None = None
    environment: str
    spec: MachineSpec
    desired: Desired = "running"
    state: State = "starting"
    node: NodeId | None = None  # where it is, or is being made
    generation: int = 0
    is_booting: bool = False  # this generation was begun and has not said that it is up
    origin: CheckpointId | None = None  # what it was born from (a fork, an environment); None: its base
    checkpoint: CheckpointId | None = None  # the newest one of its own
    # Wishes for checkpoints are numbered. One that is begun fulfils those that were there before it, and no later one.
    checkpoints_wanted: int = 0
    checkpoints_begun: int = 0
    checkpoints_made: int = 0
    is_memory_doubtful: bool = False  # the newest checkpoint's memory could not be restored: boot from its filesystem
    is_warm: bool = False  # waits in the pool of its environment; nobody has it yet
    claimed_by: OperationId | None = None  # what took it out of the pool
    reason: str | None = None  # why it is lost, or what went wrong last
    created_at: datetime
    changed_at: datetime
    revision: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be done for what is wanted."""
        # Hibernated while it should be paused: nothing runs in it either, and it waits for the same resume.
        is_so = self.state == self.desired or (self.state == "hibernated" and self.desired == "paused")
        # Checkpoints are made of running ones; for all others they wait.
        return is_so and (self.state != "running" or self.checkpoints_made >= self.checkpoints_wanted)

    @property
    def is_gone(self) -> bool:
        """For good: there is nothing that it could be woken from."""
        is_deleted = self.state == "deleted" or self.desired == "deleted"
        return is_deleted or (self.state == "lost" and self.checkpoint is None)

    @property
    def is_on_node(self) -> bool:
        """Whether some node may have a sandbox of it."""
        return self.node is not None


EventKind = Literal[
    "created",
    "booted",
    "rebooted",  # memory was gone: a cold boot on the saved filesystem
    "rolled_back",  # restored from a checkpoint older than its last effects
    "checkpointed",
    "hibernated",
    "woken",
    "paused",
    "resumed",
    "lost",
    "failed",
    "deleted",
]


class MachineEvent(BaseModel):
    """One line of a machine's own history. `data` is small and plain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EventKind
    at: datetime
    generation: int
    data: dict[str, Any] = {}


EffectState = Literal["started", "finished", "timeout", "lost"]


FORESTALLED = "forestalled"  # in the place of the digest of a request: no request has it


class Effect(BaseModel):
    """The journal's line about one command: written before it is started, and again with its result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: MachineId
    id: EffectId
    n: int  # dense per machine, from 1: the order in which they were begun
    digest: str  # of the request: the same id with another request is refused
    generation: int  # in which it was begun
    state: EffectState
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    stdout_blob: str | None = None  # the whole of it in the object store, when it is longer than what is kept inline
    stderr_blob: str | None = None
    cut_bytes: int = 0  # printed beyond the bound, and gone
    terminal: TerminalId | None = None  # that it was typed into; then `stdout` is plain text,
    output_start: int | None = None  # and what was printed, as it was, stands in the terminal's recording between these
    output_end: int | None = None
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.state != "started"

    @property
    def is_forestalled(self) -> bool:
        """It was stopped before it began, so nothing was ever done under this id."""
        return self.digest == FORESTALLED


class Node(BaseModel):
    """A host that runs machines, as it describes itself with every heartbeat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: NodeId
    address: str  # where its HTTP is: `unix:/path` or `https://host:port`
    lease_until: datetime  # by the database's own reckoning of the node's last word plus the lease
    is_draining: bool = False
    capacity: dict[str, float] = {}
    started_at: datetime


CheckpointState = Literal["making", "ready", "deleted"]


class Checkpoint(BaseModel):
    """What SQL knows of a checkpoint; all else is in its manifest, in the object store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: CheckpointId
    machine: MachineId
    generation: int
    parent: CheckpointId | None = None
    state: CheckpointState = "making"
    has_memory: bool = False
    effects_mark: int = 0  # effects up to this `n` are in it; later ones are not
    effects_under_way: tuple[EffectId, ...] | None = None  # of those, not over when it was made; None: nobody noted it
    total_bytes: int = 0
    new_bytes: int = 0
    packs: tuple[str, ...] = ()  # every pack that it needs, also those of its ancestors
    created_at: datetime
    deadline_at: datetime  # a `making` one that is older was given up by whoever made it


EnvironmentState = Literal["building", "ready", "failed"]


class Environment(BaseModel):
    """One definition, and what was built from it. Another definition is another environment, whatever its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    digest: str  # of the definition
    definition: dict[str, Any]
    state: EnvironmentState = "building"
    checkpoint: CheckpointId | None = None  # what its machines are born from
    log_key: str | None = None  # of the object that holds what the build said
    tries: int = 0  # to build it: each begins anew, in machines of its own
    warm: int = 0  # machines that wait in its pool
    reason: str | None = None  # why it failed
    created_at: datetime
    changed_at: datetime
