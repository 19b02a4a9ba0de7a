"""The door to the terminals of a machine that is up: open, attach, take, type. Straight to its node.

The node implements it; the API and tool steps reach it over HTTP. As with `MachineDoor`, every call names the
generation that the caller believes in, and a node that has another one refuses (`machine.fenced`).

Invariant: an operator is in every request that does something: nothing is done to a terminal in nobody's name.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from outlive.base import EffectId, MachineId, PrincipalId, TerminalId
from outlive.governance.identity import PrincipalKind
from outlive.machine.door import COMMAND_LIMIT, EFFECT_ID_PATTERN, TIMEOUT_LIMIT_S, TIMEOUT_S, Output, check_command
from outlive.machine.spec import User
from outlive.machine.status import Effect
from outlive.machine.terminal.frames import Channel
from outlive.machine.terminal.newest import Newest
from outlive.machine.terminal.status import Cells, Operator, Terminal

INPUT_LIMIT = 64 * 1024  # bytes of one act
CLIENT_LIMIT = 200  # characters of what a client says it is

Mode = Literal["observe", "type"]

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class OpenTerminal(BaseModel):
    """A new terminal, under an id that the caller has made: asked for again, it is the same one. Without a command or
    arguments it runs the user's shell."""

    model_config = _FROZEN

    terminal: TerminalId
    command: str | None = None  # run under `bash -c`
    argv: tuple[str, ...] | None = None
    cols: Cells = 80
    rows: Cells = 24
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    user: User | None = None  # None: as the environment says
    owner: PrincipalId

    @model_validator(mode="after")
    def _has_at_most_one_command(self) -> "OpenTerminal":
        if self.command is not None and self.argv is not None:
            raise ValueError("give either command or argv, or neither for a shell")
        check_command(self.command, self.argv, self.env, self.cwd)
        return self


class AttachTerminal(BaseModel):
    model_config = _FROZEN

    operator: Operator
    mode: Mode = "observe"
    offset: int | None = Field(None, ge=0)  # None: the present screen, then live
    client: str = Field("", max_length=CLIENT_LIMIT)  # from what: others see it
    is_return: bool = False  # who was cut off comes back: it asks for nothing new


class Take(BaseModel):
    model_config = _FROZEN

    verb: Literal["take"] = "take"


class Yield(BaseModel):
    model_config = _FROZEN

    verb: Literal["yield"] = "yield"


class Grant(BaseModel):
    model_config = _FROZEN

    verb: Literal["grant"] = "grant"
    operator: Operator  # to whom


class Input(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    verb: Literal["input"] = "input"
    data: bytes = Field(max_length=INPUT_LIMIT)


class Resize(BaseModel):
    model_config = _FROZEN

    verb: Literal["resize"] = "resize"
    cols: Cells
    rows: Cells


class Signal(BaseModel):
    """To what runs in the foreground."""

    model_config = _FROZEN

    verb: Literal["signal"] = "signal"
    number: int = Field(ge=1, le=64)


class Close(BaseModel):
    """End its program. What was recorded stays."""

    model_config = _FROZEN

    verb: Literal["close"] = "close"


Act = Annotated[Take | Yield | Grant | Input | Resize | Signal | Close, Field(discriminator="verb")]
ACT: TypeAdapter[Act] = TypeAdapter(Act)  # reads and writes any of them as JSON


class RunInTerminal(BaseModel):
    """A command for the shell that runs in a terminal, typed in the operator's name. Its effect id as in `exec`."""

    model_config = _FROZEN

    effect_id: EffectId = Field(pattern=EFFECT_ID_PATTERN)
    command: str = Field(min_length=1)
    timeout_s: float = Field(TIMEOUT_S, gt=0, le=TIMEOUT_LIMIT_S)
    operator: Operator

    @model_validator(mode="after")
    def _can_be_typed(self) -> "RunInTerminal":
        if "\0" in self.command or len(self.command.encode(errors="surrogatepass")) > min(COMMAND_LIMIT, INPUT_LIMIT):
            raise ValueError(
                f"a command that is typed holds no NUL and at most {min(COMMAND_LIMIT, INPUT_LIMIT)} bytes"
            )
        return self


class Present(BaseModel):
    """Somebody who is attached."""

    model_config = _FROZEN

    operator: PrincipalId
    name: str
    kind: PrincipalKind
    mode: Mode
    since: datetime
    client: str = ""


class TerminalView(BaseModel):
    """A terminal as its node sees it now."""

    model_config = _FROZEN

    terminal: Terminal
    offset: int  # of the next byte of output
    operators: tuple[Present, ...] = ()


class FrameStream(Protocol):
    """One attachment: frames both ways (`frames`)."""

    async def send(self, channel: Channel, payload: bytes) -> None: ...

    async def receive(self) -> tuple[Channel, bytes] | None:
        """The next one; None when the node has ended it: with the terminal's end (a FINAL frame came before), or
        because the machine is going to sleep or the node is stopping. A connection that breaks raises
        `machine.node_away` (unavailable)."""
        ...

    async def aclose(self) -> None: ...


class TerminalDoor(Protocol):
    async def open(self, machine: MachineId, generation: int, request: OpenTerminal) -> TerminalView: ...

    async def view(self, machine: MachineId, generation: int, terminal: TerminalId) -> TerminalView: ...

    async def views(self, machine: MachineId, generation: int) -> Sequence[TerminalView]: ...

    async def act(
        self, machine: MachineId, generation: int, terminal: TerminalId, operator: Operator, act: Act
    ) -> TerminalView:
        """Do it in the operator's name, or refuse: `terminal.leased` (conflict), `terminal.denied` (denied) ..., see
        `lease`. What was acknowledged survives the node."""
        ...

    async def attach(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> FrameStream: ...

    async def flush(self, machine: MachineId, generation: int, terminal: TerminalId) -> Terminal:
        """What was recorded is in the object store now."""
        ...

    async def newest(self, machine: MachineId, generation: int, terminal: TerminalId) -> Newest:
        """What was recorded and is not in the object store, for who only looks: it stays where it is, unless it is
        much."""
        ...

    async def run(self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal) -> Effect:
        """Type it once, and return what came of it, as `MachineDoor.exec` does."""
        ...

    def follow(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal
    ) -> AsyncIterator[Output | Effect]:
        """The same, with the output as it comes; the effect is last."""
        ...
