"""Records of a terminal's journal, for tests."""

from datetime import UTC, datetime, timedelta

from outlive.base import PrincipalId
from outlive.machine.terminal.journal import (
    Actor,
    Input,
    Leased,
    Mark,
    Output,
    Record,
    Resize,
    Snapshot,
    given_up,
    signal_sent,
)
from outlive.machine.terminal.status import Lease

AT = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
ADA = Actor(PrincipalId("prin_" + "a" * 32), "ada", "person")
BOT = Actor(PrincipalId("prin_" + "b" * 32), "bot", "agent")


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def printed(offset: int, data: bytes, at: float = 0) -> Output:
    return Output(after(at), offset, data)


def typed(offset: int, input_offset: int, data: bytes, at: float = 0, by: Actor = ADA) -> Input:
    return Input(after(at), offset, input_offset, by, data)


def held_by(who: Actor | None, offset: int = 0, at: float = 0) -> Leased:
    if who is None:
        return Leased(after(at), offset, None, ADA, "yield")
    lease = Lease(operator=who.id, name=who.name, kind=who.kind, since=after(at), how="take", offset=offset)
    return Leased(after(at), offset, lease, who, "take")


def gap(start: int, to: int, at: float = 0) -> Mark:
    return Mark(after(at), to, "gap", {"from": start, "to": to})


def seam(start: int, to: int, at: float = 0, generation: int = 2) -> Mark:
    return Mark(after(at), to, "seam", {"from": start, "at": to, "generation": generation})


SINCE_2: tuple[Record, ...] = (
    signal_sent(after(7), 1010, BOT, 15),
    given_up(after(8), 1010, 4, 9),
    given_up(after(8), 1010, None, 9),
    Leased(
        after(9),
        1010,
        Lease(operator=BOT.id, name=BOT.name, kind=BOT.kind, since=after(9), how="run", offset=1010),
        BOT,
        "run",
    ),
)
ONE_OF_EACH: tuple[Record, ...] = (
    Resize(AT, 0, 80, 24),
    Mark(AT, 0, "born"),
    printed(0, b"$ \xff\x00"),
    held_by(ADA, 4),
    typed(4, 0, b"ls\r", 1),
    Input(after(1), 4, 3, BOT, b"\x03", effect_id=None),
    Resize(after(2), 4, 200, 60, ADA),
    held_by(None, 4, 2),
    Snapshot(after(3), 4, 200, 60, b"\x1b[Hdrawn"),
    seam(2, 1000, 4),
    gap(1000, 1010, 5),
    printed(1010, b"", 5),
    Mark(after(6), 1010, "exit", {"exit": 0, "signal": None}),
)
