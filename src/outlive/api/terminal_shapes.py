"""The JSON of terminals: what may be sent, and what is answered."""

import base64
import binascii
import signal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from outlive.api.machine_shapes import EffectRef
from outlive.base import EffectId, PrincipalId, TerminalId, to_text
from outlive.machine.door import COMMAND_LIMIT, TIMEOUT_LIMIT_S, TIMEOUT_S
from outlive.machine.spec import User
from outlive.machine.terminal.door import INPUT_LIMIT, Mode, OpenTerminal, Present, RunInTerminal, TerminalView
from outlive.machine.terminal.frames import lease_words, seam_words
from outlive.machine.terminal.status import SIZE_LIMIT, Operator, Terminal, TerminalState

OFFSET_LIMIT = 2**53  # what every reader of JSON keeps exactly

_Text = Annotated[str, StringConstraints(max_length=COMMAND_LIMIT)]
_Cells = Annotated[int, Field(ge=1, le=SIZE_LIMIT)]
_Offset = Annotated[int, Field(ge=0, le=OFFSET_LIMIT)]


_NOBODY = Operator(id=PrincipalId("prin_none"), name="", kind="service")


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NewTerminal(_Sent):
    """A program on a PTY: `command` (run under `bash -c`), `argv`, or neither for a shell."""

    command: _Text | None = None
    argv: list[_Text] | None = None
    cols: _Cells = 80
    rows: _Cells = 24
    cwd: Annotated[str, StringConstraints(min_length=1, max_length=4_096)] = "/workspace"
    env: dict[str, _Text] = {}
    user: Annotated[User | None, Field(description="Left out: as the environment says.")] = None

    @model_validator(mode="after")
    def _can_be_opened(self) -> "NewTerminal":
        try:
            self.to_request(TerminalId("term_none"), PrincipalId("prin_none"))
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self

    def to_request(self, terminal: TerminalId, owner: PrincipalId) -> OpenTerminal:
        return OpenTerminal(
            terminal=terminal,
            command=self.command,
            argv=tuple(self.argv) if self.argv is not None else None,
            cols=self.cols,
            rows=self.rows,
            cwd=self.cwd,
            env=self.env,
            user=self.user,
            owner=owner,
        )


class NewInput(_Sent):
    """What is typed: `data` as text, or any bytes as `base64`."""

    data: Annotated[str, StringConstraints(max_length=INPUT_LIMIT)] | None = None
    base64: Annotated[str, StringConstraints(max_length=INPUT_LIMIT * 2)] | None = None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "NewInput":
        if (self.data is None) == (self.base64 is None):
            raise ValueError("give either data or base64")
        if len(self.to_bytes()) > INPUT_LIMIT:
            raise ValueError(f"at most {INPUT_LIMIT} bytes are typed at once")
        return self

    def to_bytes(self) -> bytes:
        if self.data is not None:
            return self.data.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("base64 is not base64") from None


class NewSize(_Sent):
    cols: _Cells
    rows: _Cells


def _check_signal(given: str | int) -> str | int:
    signal_number(given)
    return given


def signal_number(given: str | int) -> int:
    """A number, or a name with or without SIG."""
    if isinstance(given, int):
        if not 1 <= given <= 64:
            raise ValueError("is not a signal")
        return given
    name = given.upper()
    found = getattr(signal.Signals, name if name.startswith("SIG") else f"SIG{name}", None)
    if not isinstance(found, signal.Signals):
        raise ValueError("is not a signal")
    return int(found)


class NewTerminalSignal(_Sent):
    signal: Annotated[
        Annotated[str, StringConstraints(max_length=20)] | int,
        AfterValidator(_check_signal),
        Field(description="A number, or a name: `INT`, `SIGTERM`.", json_schema_extra={"examples": ["INT", 15]}),
    ]


class NewGrant(_Sent):
    operator: Annotated[str, StringConstraints(min_length=1, max_length=200), Field(description="Its id, or its name.")]


class NewRun(_Sent):
    """A command for the shell in the terminal, typed in the caller's name."""

    command: Annotated[str, StringConstraints(min_length=1, max_length=INPUT_LIMIT)]
    timeout_s: Annotated[float, Field(gt=0, le=TIMEOUT_LIMIT_S)] = TIMEOUT_S
    effect_id: Annotated[EffectRef | None, Field(description="Made by the caller: the same id never runs twice")] = None

    @model_validator(mode="after")
    def _can_be_typed(self) -> "NewRun":
        try:
            self.to_request(EffectId("eff_none"), _NOBODY)
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        return self

    def to_request(self, effect: EffectId, operator: Operator) -> RunInTerminal:
        return RunInTerminal(
            effect_id=EffectId(self.effect_id) if self.effect_id is not None else effect,
            command=self.command,
            timeout_s=self.timeout_s,
            operator=operator,
        )


# ── queries ──


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TerminalsQuery(_Asked):
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str | None, Field(max_length=100)] = None
    ended: Annotated[bool, Field(description="Also those that have ended.")] = True


class AttachQuery(_Asked):
    offset: Annotated[_Offset | None, Field(alias="from")] = None
    mode: Mode = "observe"
    again: Annotated[bool, Field(description="You were cut off and come back: a lease that is free stays free.")] = (
        False
    )


class SpanQuery(_Asked):
    start: Annotated[_Offset, Field(alias="from", description="The first byte of output.")] = 0
    end: Annotated[_Offset | None, Field(alias="to", description="Before this one; left out: to the newest.")] = None


class ScreenQuery(_Asked):
    format: Literal["text", "vt"] = "text"


# ── answers ──


class LeaseShown(BaseModel):
    operator: str
    name: str
    kind: str
    since: str
    how: str
    offset: int


class PresentShown(BaseModel):
    operator: str
    name: str
    kind: str
    mode: Mode
    since: str
    client: str


class SeamShown(BaseModel):
    from_: Annotated[int, Field(alias="from")]
    at: int
    generation: int


class TerminalShown(BaseModel):
    id: str
    machine: str
    state: TerminalState
    offset: int
    cols: int
    rows: int
    lease: LeaseShown | None
    operators: list[PresentShown]
    title: str
    command: list[str] | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    origin: str | None
    seams: list[SeamShown]
    recorded_to: int
    created_by: str
    created_at: str
    changed_at: str
    ended_at: str | None


class TerminalPage(BaseModel):
    items: list[TerminalShown]
    next: str | None


def terminal_json(view: TerminalView) -> dict[str, Any]:
    terminal = view.terminal
    lease = lease_words(terminal.lease)
    if lease is not None and terminal.lease is not None:
        lease |= {"since": to_text(terminal.lease.since)}
    return {
        "id": terminal.id,
        "machine": terminal.machine,
        "state": terminal.state,
        "offset": view.offset,
        "cols": terminal.cols,
        "rows": terminal.rows,
        "lease": lease,
        "operators": [_present(each) for each in view.operators],
        "title": terminal.title,
        "command": None if terminal.command is None else list(terminal.command),
        "exit_code": terminal.exit_code,
        "signal": terminal.signal,
        "reason": terminal.reason,
        "origin": terminal.origin,
        "seams": [seam_words(each) for each in terminal.seams],
        "recorded_to": terminal.recorded_to,
        "created_by": terminal.owner,
        "created_at": to_text(terminal.created_at),
        "changed_at": to_text(terminal.changed_at),
        "ended_at": None if terminal.ended_at is None else to_text(terminal.ended_at),
    }


def _present(present: Present) -> dict[str, Any]:
    return {**present.model_dump(), "since": to_text(present.since)}


def at_rest(terminal: Terminal) -> TerminalView:
    """A terminal as SQL knows it, when no node can be asked: nobody is there, and what was recorded is all there is."""
    return TerminalView(terminal=terminal, offset=terminal.recorded_to)
