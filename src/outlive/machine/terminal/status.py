"""What is known of a terminal: one record, changed only by pure functions inside a transaction (`records`).

Rule 1: an offset counts the bytes of output since the terminal was born, and stands for one byte for ever. It is
        reserved (`reserved_to`) before anybody is shown what it stands for.
Rule 2: whoever may type is in the record before it is acknowledged, so a restarted node refuses the same people.
"""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from outlive.base import MachineId, PrincipalId, TerminalId
from outlive.governance.identity import PrincipalKind, Right

SIZE_LIMIT = 1_000  # columns, rows
SEAM_LIMIT = 64  # kept in a record: the newest

Cells = Annotated[int, Field(ge=1, le=SIZE_LIMIT)]  # columns or rows
TerminalState = Literal["open", "exited", "closed", "lost"]
LeaseHow = Literal["attach", "take", "grant", "input", "run"]


class Operator(BaseModel):
    """A principal at a terminal, and what it may do there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: PrincipalId
    name: str
    kind: PrincipalKind
    rights: frozenset[Right] = frozenset()


class Holding(BaseModel):
    """The right to type, and who has it: as everybody is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: PrincipalId
    name: str
    kind: PrincipalKind
    since: datetime
    how: LeaseHow
    offset: int  # of the output at which it began


class Lease(Holding):
    is_forced: bool = False  # taken, or granted by another than who held it: what was typed before is not wanted


class Epoch(BaseModel):
    """How the guest's own counting of output maps to offsets: offset = base + (guest's - anchor), from `anchor` on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    generation: int = 0  # of the machine, in which it began
    base: int = 0
    anchor: int = 0


class Seam(BaseModel):
    """The machine was rolled back: what was printed from `start` to `at` did not happen any more, and it goes on at
    `at`. On the wire `start` is called `from`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int
    at: int
    generation: int  # that came up with it


class Size(NamedTuple):
    cols: int
    rows: int


class Terminal(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: TerminalId
    machine: MachineId
    name: str  # what the guest calls it: the id, for those opened in this machine
    origin: TerminalId | None = None  # whose recording has what is older, in a fork
    owner: PrincipalId
    command: tuple[str, ...] | None = None  # None: a shell
    cols: Cells = 80
    rows: Cells = 24
    state: TerminalState = "open"
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None  # why it is closed or lost
    lease: Lease | None = None
    epoch: Epoch = Epoch()
    seams: tuple[Seam, ...] = ()  # the newest
    reserved_to: int = 0  # no byte at or after this offset was shown to anybody
    recorded_to: int = 0  # what is before it is in the object store
    segments: int = 0  # of its recording
    title: str = ""
    created_at: datetime
    changed_at: datetime
    ended_at: datetime | None = None
    revision: int = 0

    @property
    def is_open(self) -> bool:
        return self.state == "open"


class Segment(BaseModel):
    """A piece of a recording in the object store: journal records, in the order they were written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    terminal: TerminalId
    n: int = Field(ge=1)  # dense, from 1
    start: int = Field(ge=0)  # offsets of the output in it
    end: int = Field(ge=0)
    input_start: int = Field(0, ge=0)
    input_end: int = Field(0, ge=0)
    begun_at: datetime
    ended_at: datetime
    key: str
    size: int = Field(ge=0)  # bytes in the object store
    generation: int = 0
