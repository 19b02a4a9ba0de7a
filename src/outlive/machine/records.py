"""The ports to what SQL knows about machines, their effects, their checkpoints and the nodes. No I/O here.

Rule 1: a machine's record is changed by handing in a pure function (`lifecycle`), run inside one transaction on the row
        as it is then: so no decision is made on something stale.
Rule 2: an effect is begun only by the node and generation that the machine's record names at that moment. This, and
        the same check when a checkpoint is made ready, is the fence: an old machine can neither run nor save anything.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from outlive.base import CheckpointId, ConversationId, EffectId, MachineId, NodeId, OperationId, PrincipalId
from outlive.machine.lifecycle import Change
from outlive.machine.status import Checkpoint, Effect, Environment, Machine, MachineEvent, Node
from outlive.machine.terminal.records import TerminalRecords

Decide = Callable[[Machine], Change]
DecideEnvironment = Callable[[Environment], Environment]


class MachineFilter(NamedTuple):
    """None: any. Deleted ones and those in a warm pool are listed only when asked for."""

    owner: PrincipalId | None = None
    conversation: ConversationId | None = None
    environment: str | None = None
    node: NodeId | None = None
    states: tuple[str, ...] | None = None  # None: all but deleted
    is_warm: bool | None = False


class Gone(NamedTuple):
    """A node whose lease ended more than `margin_s` ago by the database's clock."""

    node: NodeId
    margin_s: float


class MachineRecords(Protocol):
    async def create(self, machine: Machine) -> Machine:
        """Put a new record and the first line of its history (`created`); one with this id that is there already is
        returned as it is. `checkpoint.unknown` if it refers to a checkpoint that is not ready."""
        ...

    async def get(self, machine: MachineId) -> Machine:
        """`machine.unknown` (not_found) if there is none. Deleted ones are still told of."""
        ...

    async def list(self, chosen: MachineFilter, *, limit: int, before: MachineId | None = None) -> Sequence[Machine]:
        """Newest first, those with an id below `before`."""
        ...

    async def change(self, machine: MachineId, decide: Decide, *, gone: Gone | None = None) -> Machine:
        """Run `decide` on the record inside one transaction, apply what it says, return what is there then. `decide`
        is pure, may be run more than once, and refuses by raising. `revision` grows by one with every real change.
        `checkpoint.unknown` if it would refer to a checkpoint that is not ready: so none is deleted under it. With
        `gone` nothing is changed unless that node is gone at that very moment: a node that renews its lease and then
        reads the record knows that nobody has taken the machine, and nobody will."""
        ...

    async def claim_warm(self, environment: str, decide: Decide, *, operation: OperationId) -> Machine | None:
        """The same on some running warm machine of this environment that nobody else gets, since it is not warm any
        more; None if there is none. Those on a node whose lease is over are left out. An operation that has claimed one
        before gets that one again, as it is now."""
        ...

    async def events(self, machine: MachineId, *, after: int, limit: int) -> Sequence[tuple[int, MachineEvent]]:
        """The machine's own history, numbered from 1."""
        ...


USED_UP_FOR = timedelta(days=90)  # far longer than any process stands still and then goes on


class EffectBegin(NamedTuple):
    """What `Effects.begin` found: the line of the journal, and whether it was written just now."""

    effect: Effect
    is_new: bool


class Effects(Protocol):
    async def begin(
        self, machine: MachineId, effect: EffectId, *, node: NodeId, generation: int, digest: str, at: datetime
    ) -> EffectBegin:
        """Write that this command is about to be started, or return what is written under its id.
        `machine.fenced` unless the machine's record names this node and generation and is running (what is over is
        told to anybody); `effect.other_request` (conflict) if the id stands for another request."""
        ...

    async def use_up(self, effect: EffectId, *, at: datetime) -> None:
        """From now on no machine begins it that has not: `effect.forestalled` (conflict), for `USED_UP_FOR`. Who begins
        it at this very moment may still come through; `forestall` says so."""
        ...

    async def forestall(self, machine: MachineId, effect: EffectId, *, at: datetime) -> Effect | None:
        """What this machine has begun under this id; or a line that is over from the start, so that it never begins:
        of the two, one wins. In whatever state the machine is; None if there is no such machine."""
        ...

    async def find(self, machine: MachineId, effect: EffectId) -> Effect | None: ...

    async def finish(self, effect: Effect, *, holder: tuple[NodeId, int] | None = None) -> Effect:
        """Write the result of one that was begun. The first result stays: a second one changes nothing and the
        recorded one is returned. With a holder (node, generation): `machine.fenced` unless the machine's record names
        it, since the same command may go on in a newer generation. `effect.unknown` if it was never begun."""
        ...

    async def list(self, machine: MachineId, *, after: int, limit: int) -> Sequence[Effect]:
        """In the order they were begun, those with `n` above `after`."""
        ...

    async def begun(self, machine: MachineId) -> Sequence[Effect]:
        """Those that have no result, in the order they were begun."""
        ...

    async def mark(self, machine: MachineId) -> int:
        """The `n` of the newest; 0 if there is none."""
        ...

    async def lose(
        self,
        machine: MachineId,
        *,
        above: int,
        at: datetime,
        except_ids: Sequence[EffectId] = (),
        holder: tuple[NodeId, int] | None = None,
    ) -> Sequence[EffectId]:
        """Those above this mark that were begun and have no result are `lost` from now on. Returns them. Fenced by a
        holder as `finish` is."""
        ...


class Renewal(NamedTuple):
    node: Node  # with its lease as it is now
    was_over: bool  # there was none any more at that moment: others may have taken its machines since


class Nodes(Protocol):
    async def renew(self, node: Node, *, lease_s: float) -> Renewal:
        """The node's heartbeat: says where it is and what it has room for, and extends its lease, reckoned by the
        database's clock. Whether the lease before was over is found out in the same change: nobody comes between."""
        ...

    async def get(self, node: NodeId) -> Node:
        """`node.unknown` (not_found) if there is none."""
        ...

    async def list(self) -> Sequence[Node]: ...

    async def is_gone(self, node: NodeId, *, margin_s: float) -> bool:
        """Whether its lease ended more than `margin_s` ago by the database's clock, or it was never there."""
        ...

    async def forget(self, node: NodeId, *, margin_s: float | None = None) -> bool:
        """It is not listed any more, until it renews its lease. Only if no machine's record names it, and with a margin
        only if its lease ended more than that ago by the database's clock. Returns whether there is none now."""
        ...


class CheckpointRecords(Protocol):
    async def begin(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        """Write that it is being made; its parent, if it has one, is pinned until it is ready or given up.
        With a node: refused (`machine.fenced`) unless the machine's record names that node and the checkpoint's
        generation. `checkpoint.unknown` if the parent is not ready."""
        ...

    async def finish(self, checkpoint: Checkpoint, *, node: NodeId | None) -> Checkpoint:
        """It is stored and verified: `ready`, with its packs. Fenced as `begin` is. Idempotent."""
        ...

    async def get(self, checkpoint: CheckpointId) -> Checkpoint:
        """`checkpoint.unknown` (not_found) if there is none or it was deleted."""
        ...

    async def list(self, machine: MachineId) -> Sequence[Checkpoint]:
        """Newest first, without deleted ones."""
        ...

    async def delete(self, checkpoint: CheckpointId) -> bool:
        """Mark it deleted, unless something needs it: a machine (as its newest or its origin), one being made that has
        it as parent, or an environment. Returns whether it is deleted now."""
        ...

    async def expire(self, now: datetime) -> Sequence[CheckpointId]:
        """Those still `making` after their deadline were given up: mark them deleted. Returns them."""
        ...

    async def living(self) -> tuple[frozenset[CheckpointId], frozenset[CheckpointId]]:
        """In one transaction: the checkpoints that are ready, and those that are being made."""
        ...

    async def abandoned(self) -> Sequence[CheckpointId]:
        """Those of deleted machines, newest first. Others may have been born from them: `delete` says."""
        ...


class EnvironmentRecords(Protocol):
    async def put(self, environment: Environment) -> Environment:
        """From now on its name stands for this definition. One with this digest that is there already is returned as
        it is, with all that was built from it."""
        ...

    async def get(self, name_or_digest: str) -> Environment:
        """What the name stands for now, or the one with this digest. `environment.unknown` (not_found) if neither."""
        ...

    async def list(self) -> Sequence[Environment]:
        """What each name stands for now, by name."""
        ...

    async def change(self, digest: str, decide: DecideEnvironment) -> Environment:
        """As `MachineRecords.change`: `decide` is pure and returns the record as it shall be. Neither digest nor
        definition can change."""
        ...


class Records(NamedTuple):
    """All of it, in one database."""

    machines: MachineRecords
    effects: Effects
    nodes: Nodes
    checkpoints: CheckpointRecords
    environments: EnvironmentRecords
    terminals: TerminalRecords
