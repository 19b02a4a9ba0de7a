"""What a node is made of: the ports that it is handed, and what it knows of its host."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from outlive.base import Clock, NodeId
from outlive.governance.egress_records import Record
from outlive.governance.egress_shared import SharedEgress
from outlive.machine.base import Base, Runtime
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.keeper import Settler
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.records import CheckpointRecords, Effects, MachineRecords, Nodes
from outlive.machine.sandbox import Sandboxes
from outlive.machine.terminal.lease import LEASE_GRACE_S
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.screen import Screens
from outlive.storage.objects import ObjectStore


class Bases(Protocol):
    async def base(self, reference: str, key: str | None) -> Base:
        """What this reference stands for; with a key, that very one (`base.missing` if it is not to be had here)."""
        ...

    async def runtime(self, key: str | None = None) -> Runtime:
        """The guest's runtime; with a key, that very one (`runtime.missing`)."""
        ...


class HostFacts(NamedTuple):
    """What a checkpoint's memory depends on, besides its base and its runtime."""

    runsc_version: str
    platform: str
    cpu_features: tuple[str, ...]


class NodeLimits(NamedTuple):
    machines: int = 64  # that are up here at the same time, or coming up


class NodeParts(NamedTuple):
    node: NodeId
    path: Path
    machines: MachineRecords
    effects: Effects
    nodes: Nodes
    checkpoints: CheckpointRecords
    store: CheckpointStore
    objects: ObjectStore
    sandboxes: Sandboxes
    bases: Bases
    settler: Settler
    egress_record: Record
    egress: SharedEgress
    host: HostFacts
    clock: Clock
    terminals: TerminalRecords
    screens: Screens
    limits: NodeLimits = NodeLimits()
    idle: IdlePolicy = IdlePolicy()
    checkpoint_every_s: float | None = 600.0  # while in use
    lease_s: float = 20.0
    beat_s: float = 5.0
    lease_grace_s: float = LEASE_GRACE_S  # of who holds a terminal


Say = Callable[[str], None]
