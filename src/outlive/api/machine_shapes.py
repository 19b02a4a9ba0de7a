"""The shapes of the API about machines: what may be sent, and what is answered. As in `shapes`."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.json_schema import WithJsonSchema

from outlive.api.shapes import ConversationRef, Name, Title
from outlive.base import EffectId, is_id, to_text
from outlive.machine.door import (
    COMMAND_LIMIT,
    EFFECT_ID_PATTERN,
    STDIN_LIMIT,
    TIMEOUT_LIMIT_S,
    TIMEOUT_S,
    ExecRequest,
    FileEntry,
    ProcessEntry,
)
from outlive.machine.keeper import FORK_LIMIT
from outlive.machine.spec import User
from outlive.machine.status import Checkpoint, Effect, Machine, MachineEvent, Node, State

Outcome = Literal["started", "finished", "timeout", "lost"]
STATES: tuple[State, ...] = get_args(State)
SIGNAL_LIMIT = 64
FILE_CURSOR_LIMIT = 2_000  # twice the bytes of the longest name

EffectRef = Annotated[str, StringConstraints(pattern=EFFECT_ID_PATTERN)]
_Text = Annotated[str, StringConstraints(max_length=COMMAND_LIMIT)]


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NewMachine(_Sent):
    environment: Annotated[Name | None, Field(description="What it is made from; left out: `default`.")] = None
    name: Title | None = None
    conversation: ConversationRef | None = None


class NewMachineFork(_Sent):
    count: Annotated[int, Field(ge=1, le=FORK_LIMIT)] | None = None
    name: Title | None = None


class NoBody(_Sent):
    """Nothing: `{}`, or no body at all."""


class NewExec(_Sent):
    """One command: either `command` (run under `bash -c`) or `argv`."""

    command: _Text | None = None
    argv: list[_Text] | None = None
    cwd: Annotated[str, StringConstraints(min_length=1, max_length=4_096)] = "/workspace"
    env: dict[str, _Text] = {}
    timeout_s: Annotated[float, Field(gt=0, le=TIMEOUT_LIMIT_S)] = TIMEOUT_S
    stdin: Annotated[str, StringConstraints(max_length=STDIN_LIMIT)] | None = None
    effect_id: Annotated[EffectRef | None, Field(description="Made by the caller: the same id never runs twice")] = None
    user: Annotated[User | None, Field(description="Left out: as the environment says.")] = None
    background: Annotated[bool, Field(description="Answer as soon as it was started.")] = False

    @model_validator(mode="after")
    def _is_a_command(self) -> "NewExec":
        try:
            self.to_request(EffectId("eff_none"))
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self

    def to_request(self, effect: EffectId) -> ExecRequest:
        return ExecRequest(
            effect_id=EffectId(self.effect_id) if self.effect_id is not None else effect,
            command=self.command,
            argv=tuple(self.argv) if self.argv is not None else None,
            cwd=self.cwd,
            env=self.env,
            timeout_s=self.timeout_s,
            stdin=self.stdin,
            user=self.user,
            background=self.background,
        )


class NewSignal(_Sent):
    signal: Annotated[int, Field(ge=1, le=SIGNAL_LIMIT, description="A number, as in `kill -l`.")]


class NewStdin(_Sent):
    text: Annotated[str, StringConstraints(max_length=STDIN_LIMIT)] = ""
    end: Annotated[bool, Field(description="Nothing more will come.")] = False
    offset: Annotated[
        int | None, Field(ge=0, description="The bytes of stdin before this text: so it can be sent again safely.")
    ] = None


class StdinTaken(BaseModel):
    """How much of its stdin a command has been given since its start."""

    offset: int


# ── queries ──


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_states(text: str) -> str:
    if not all(state in STATES for state in text.split(",")):
        raise ValueError(f"is not a list of: {', '.join(STATES)}")
    return text


def _check_conversation(text: str) -> str:
    if not is_id(text, "conv"):
        raise ValueError("is not the id of a conversation")
    return text


class MachinesQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[str | None, Field(max_length=100)] = None
    conversation: Annotated[
        str | None,
        AfterValidator(lambda text: None if text is None else _check_conversation(text)),
        WithJsonSchema({"type": "string", "pattern": "^conv_[0-9a-f]{32}$"}),
    ] = None
    environment: Annotated[str | None, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")] = None
    state: Annotated[
        str | None,
        AfterValidator(lambda text: None if text is None else _check_states(text)),
        Field(description="One or more, with commas; left out: all but deleted."),
        WithJsonSchema({"type": "string", "enum": list(STATES)}),
    ] = None


class NumberedQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[int, Field(ge=0, le=2**53)] = 0


class FileQuery(_Asked):
    list: Annotated[bool, Field(description="What is in this directory, as JSON.")] = False
    stat: Annotated[bool, Field(description="About this file, as JSON.")] = False
    limit: Annotated[int | None, Field(ge=1, le=1000, description="With `list`; left out: all that is in it.")] = None
    cursor: Annotated[str | None, Field(max_length=FILE_CURSOR_LIMIT)] = None


class PutFileQuery(_Asked):
    mode: Annotated[str | None, StringConstraints(pattern=r"^0?[0-7]{3}$")] = None


class DeleteFileQuery(_Asked):
    recursive: bool = False


# ── answers ──


class MachineShown(BaseModel):
    id: str
    name: str | None
    state: State
    desired: str
    generation: int
    node: str | None
    environment: str
    conversation: str | None
    base: str
    limits: dict[str, Any]
    ports: list[int]
    checkpoint: str | None
    origin: str | None
    reason: str | None
    created_by: str
    created_at: str
    changed_at: str


class MachinePage(BaseModel):
    items: list[MachineShown]
    next: str | None


class MachineList(BaseModel):
    items: list[MachineShown]


class CheckpointMade(BaseModel):
    id: str


class EffectShown(BaseModel):
    n: int
    effect_id: str
    outcome: Outcome
    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool
    cut_bytes: int
    generation: int
    started_at: str
    ended_at: str | None


class EffectPage(BaseModel):
    items: list[EffectShown]
    next: int | None


class ProcessPage(BaseModel):
    items: list[ProcessEntry]
    next: int | None


class PortPage(BaseModel):
    items: list[int]
    next: int | None


class FilePage(BaseModel):
    items: list[FileEntry]
    next: str | None


class FileWritten(BaseModel):
    path: str
    size: int


class MachineEventShown(BaseModel):
    n: int
    kind: str
    at: str
    generation: int
    data: dict[str, Any]


class MachineEventPage(BaseModel):
    items: list[MachineEventShown]
    next: int | None


class CheckpointShown(BaseModel):
    id: str
    machine: str
    generation: int
    state: str
    parent: str | None
    has_memory: bool
    total_bytes: int
    new_bytes: int
    created_at: str


class CheckpointPage(BaseModel):
    items: list[CheckpointShown]
    next: str | None


class NodeShown(BaseModel):
    id: str
    lease_until: str  # by the clock of the database
    has_lease: bool  # now, by that clock
    is_draining: bool
    capacity: dict[str, float]
    started_at: str


class NodePage(BaseModel):
    items: list[NodeShown]
    next: str | None


def machine_json(machine: Machine) -> dict[str, Any]:
    return {
        "id": machine.id,
        "name": machine.name,
        "state": machine.state,
        "desired": machine.desired,
        "generation": machine.generation,
        "node": machine.node,
        "environment": machine.environment,
        "conversation": machine.conversation,
        "base": machine.spec.base,
        "limits": machine.spec.limits.model_dump(),
        "ports": list(machine.spec.ports),
        "checkpoint": machine.checkpoint,
        "origin": machine.origin,
        "reason": machine.reason,
        "created_by": machine.owner,
        "created_at": to_text(machine.created_at),
        "changed_at": to_text(machine.changed_at),
    }


def effect_json(effect: Effect) -> dict[str, Any]:
    return {
        "n": effect.n,
        "effect_id": effect.id,
        "outcome": effect.state,
        "exit_code": effect.exit_code,
        "stdout": effect.stdout,
        "stderr": effect.stderr,
        "truncated": effect.truncated,
        "cut_bytes": effect.cut_bytes,
        "generation": effect.generation,
        "started_at": to_text(effect.started_at),
        "ended_at": to_text(effect.ended_at) if effect.ended_at else None,
    }


def file_json(entry: FileEntry) -> dict[str, Any]:
    return {**entry.model_dump(), "modified_at": to_text(entry.modified_at)}


def event_json(n: int, event: MachineEvent) -> dict[str, Any]:
    return {
        "n": n,
        "kind": event.kind,
        "at": to_text(event.at),
        "generation": event.generation,
        "data": event.data,
    }


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "machine": checkpoint.machine,
        "generation": checkpoint.generation,
        "state": checkpoint.state,
        "parent": checkpoint.parent,
        "has_memory": checkpoint.has_memory,
        "total_bytes": checkpoint.total_bytes,
        "new_bytes": checkpoint.new_bytes,
        "created_at": to_text(checkpoint.created_at),
    }


def node_json(node: Node, *, has_lease: bool) -> dict[str, Any]:
    return {
        "id": node.id,
        "lease_until": to_text(node.lease_until),
        "has_lease": has_lease,
        "is_draining": node.is_draining,
        "capacity": node.capacity,
        "started_at": to_text(node.started_at),
    }
