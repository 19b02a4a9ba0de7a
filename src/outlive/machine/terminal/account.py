"""What happened at a terminal between two offsets, as one piece: for whoever was away and has to go on. Pure.

An agent whose lease was taken reads this when it gets it back: the text that was printed, without escape sequences;
what was typed and by whom; who held the lease; which commands ran and how they ended.

Invariant: an account is bounded whatever happened. Of too much the newest part is told, and `is_cut` says so.
"""

from collections import deque
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from outlive.base import EffectId, PrincipalId
from outlive.governance.identity import PrincipalKind
from outlive.machine.terminal.journal import Actor, Input, Leased, Mark, Output, Record, Resize
from outlive.machine.terminal.marks import Commands, Marks
from outlive.machine.terminal.plain import plain_text
from outlive.machine.terminal.status import Holding

TEXT_LIMIT = 256 * 1024  # bytes of output
TYPED_LIMIT = 64 * 1024  # characters in all
PARTS_LIMIT = 1_000  # of each list
_LINE_LIMIT = 4 * 1024
_ONE_GO = timedelta(seconds=2)  # keys that one operator presses closer together than this are told as one text


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Typed(_Told):
    operator: PrincipalId
    name: str
    kind: PrincipalKind
    at: datetime
    offset: int  # of the output, when it was typed
    text: str  # control characters as people write them: ^C
    input_offset: int = 0  # of its first byte, among all that was typed
    effect_id: EffectId | None = None


class LeaseEvent(_Told):
    at: datetime
    offset: int
    lease: Holding | None
    by: PrincipalId | None
    how: str


class SignalTold(_Told):
    operator: PrincipalId
    name: str
    kind: PrincipalKind
    at: datetime
    offset: int
    signal: int


class SizeTold(_Told):
    at: datetime
    offset: int
    cols: int
    rows: int
    operator: PrincipalId | None  # None: nobody's window, it was opened so


class GivenUp(_Told):
    """Of what was typed, these bytes did not get to the program: somebody has taken the terminal before it read them,
    or it did not read at all."""

    at: datetime
    offset: int
    start: int | None = Field(alias="from")  # None: not known
    to: int


class CommandTold(_Told):
    command_line: str | None
    exit_code: int | None
    start: int
    output_start: int
    output_end: int | None  # None: it runs


class Missing(_Told):
    """Output that is not in the text: lost, or rolled back with the machine."""

    kind: Literal["gap", "seam"]
    start: int = Field(alias="from")
    to: int


class Account(_Told):
    start: int = Field(alias="from")
    to: int
    text: str
    is_cut: bool
    typed: tuple[Typed, ...]
    leases: tuple[LeaseEvent, ...]
    commands: tuple[CommandTold, ...]
    missing: tuple[Missing, ...] = ()
    signals: tuple[SignalTold, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    sizes: tuple[SizeTold, ...] = ()


class Accounting:
    """Take the records of a range in order, then ask for the account."""

    def __init__(self, start: int) -> None:
        self._start = self._end = start
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._typed: deque[Typed] = deque()
        self._typed_size = 0
        self._typed_at: datetime | None = None
        self._leases: deque[LeaseEvent] = deque(maxlen=PARTS_LIMIT)
        self._missing: deque[Missing] = deque(maxlen=PARTS_LIMIT)
        self._signals: deque[SignalTold] = deque(maxlen=PARTS_LIMIT)
        self._given_up: deque[GivenUp] = deque(maxlen=PARTS_LIMIT)
        self._sizes: deque[SizeTold] = deque(maxlen=PARTS_LIMIT)
        self._marks = Marks()
        self._commands = Commands()
        self._is_cut = False

    def take(self, record: Record) -> None:
        self._end = max(self._end, record.end if isinstance(record, Output) else record.offset)
        match record:
            case Output():
                self._printed(record)
            case Input():
                self._type(record)
            case Leased():
                self._is_cut = self._is_cut or len(self._leases) == PARTS_LIMIT
                by = record.by.id if record.by else None
                self._leases.append(
                    LeaseEvent(at=record.at, offset=record.offset, lease=record.lease, by=by, how=record.how)
                )
                self._typed_at = None
            case Mark(kind="gap" | "seam" as kind):
                start = record.value.get("from") if isinstance(record.value, dict) else None
                start = start if isinstance(start, int) else record.offset
                self._missing.append(Missing(kind=kind, start=start, to=record.offset))
            case Resize():
                self._resize(record)
            case Mark(kind="signal" | "given_up"):
                self._done(record)
            case _:
                pass

    def _resize(self, record: Resize) -> None:
        last = self._sizes[-1] if self._sizes else None
        if last is None or (last.cols, last.rows) != (record.cols, record.rows):
            by = record.operator.id if record.operator else None
            size = SizeTold(at=record.at, offset=record.offset, cols=record.cols, rows=record.rows, operator=by)
            self._sizes.append(size)

    def _done(self, mark: Mark) -> None:
        place = {"at": mark.at, "offset": mark.offset}
        match mark.value:
            case {"number": int(number), "operator": {"id": who, "name": name, "kind": kind}}:
                told = {"operator": who, "name": name, "kind": kind, "signal": number}
                self._signals.append(SignalTold.model_validate(place | told))
            case {"from": start, "to": int(to)}:
                self._given_up.append(GivenUp.model_validate(place | {"start": start, "to": to}))
            case _:
                pass

    def account(self) -> Account:
        return Account(
            start=self._start,
            to=self._end,
            text=plain_text(self._newest()),
            is_cut=self._is_cut,
            typed=tuple(self._typed),
            leases=tuple(self._leases),
            commands=tuple(CommandTold.model_validate(run._asdict()) for run in self._commands.runs),
            missing=tuple(self._missing),
            signals=tuple(self._signals),
            given_up=tuple(self._given_up),
            sizes=tuple(self._sizes),
        )

    def _newest(self) -> bytes:
        printed = b"".join(self._pieces)
        if len(printed) <= TEXT_LIMIT:
            return printed
        printed = printed[-TEXT_LIMIT:]
        return printed[printed.find(b"\n", 0, _LINE_LIMIT) + 1 :]  # not with half a line, or half an escape sequence

    def _printed(self, record: Output) -> None:
        self._commands.take(self._marks.feed(record.offset, record.data))
        self._pieces.append(record.data)
        self._size += len(record.data)
        self._is_cut = self._is_cut or self._size > TEXT_LIMIT
        while self._size - len(self._pieces[0]) >= TEXT_LIMIT:
            self._size -= len(self._pieces.popleft())

    def _type(self, record: Input) -> None:
        text = _shown(record.data)
        self._typed_size += len(text)
        last = self._typed[-1] if self._typed else None
        is_same = last is not None and _who(last) == record.operator and last.effect_id == record.effect_id
        if last is not None and is_same and self._typed_at is not None and record.at - self._typed_at < _ONE_GO:
            self._typed[-1] = last.model_copy(update={"text": last.text + text})
        else:
            who = record.operator
            typed = Typed(
                operator=who.id,
                name=who.name,
                kind=who.kind,
                at=record.at,
                offset=record.offset,
                text=text,
                input_offset=record.input_offset,
                effect_id=record.effect_id,
            )
            self._typed.append(typed)
        self._typed_at = record.at
        while len(self._typed) > PARTS_LIMIT or (self._typed_size > TYPED_LIMIT and len(self._typed) > 1):
            self._typed_size -= len(self._typed.popleft().text)
            self._is_cut = True
        if self._typed_size > TYPED_LIMIT:
            self._typed[-1] = self._typed[-1].model_copy(update={"text": self._typed[-1].text[-TYPED_LIMIT:]})
            self._typed_size, self._is_cut = TYPED_LIMIT, True


def _who(typed: Typed) -> Actor:
    return Actor(typed.operator, typed.name, typed.kind)


def _shown(data: bytes) -> str:
    """What was typed, to be read: Enter is a new line, other control characters are in caret notation."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(_key(letter) for letter in text)


def _key(letter: str) -> str:
    number = ord(letter)
    if letter in "\n\t" or number >= 0xA0:
        return letter
    if number < 0x20:
        return f"^{chr(number + 0x40)}"
    return "^?" if number == 0x7F else "" if number > 0x7F else letter
