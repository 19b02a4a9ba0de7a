"""Offsets: how the guest's counting of output becomes one that never goes back. Pure.

The guest counts in its memory, so a machine that comes up from a checkpoint counts on from an older number. An epoch
says how its numbers are to be read. Offsets are reserved in SQL before anybody is shown what they stand for, so
whoever brings a machine up knows what may have been shown, also if the node that showed it is gone.

Invariant: no offset ever stands for two different bytes, and what comes later has the greater offset.
"""

from collections.abc import Iterator
from datetime import datetime

from outlive.base import BrokenError, MachineId, TerminalId
from outlive.machine.terminal.status import SEAM_LIMIT, Epoch, Seam, Terminal

RESERVE_STEP = 1024 * 1024


def to_offset(epoch: Epoch, guest: int) -> int:
    """What is before the anchor was counted by an older epoch; no offset of this one stands for it."""
    if guest < epoch.anchor:
        raise BrokenError("terminal.epoch", f"Byte {guest} of a guest's terminal is older than its epoch.")
    return epoch.base + guest - epoch.anchor


def to_guest(epoch: Epoch, offset: int) -> int | None:
    """Where the guest has it; None if only the recording does."""
    return epoch.anchor + offset - epoch.base if offset >= epoch.base else None


# ── reservations ──


def needs_reservation(reserved_to: int, end: int) -> bool:
    """Whether nothing up to the offset `end` may be shown before more is reserved."""
    return end > reserved_to


def wants_reservation(reserved_to: int, end: int) -> bool:
    """Whether it is time to reserve more, so that nobody has to wait for it."""
    return end > reserved_to - RESERVE_STEP // 2


def reserve(terminal: Terminal, end: int, *, step: int = RESERVE_STEP) -> Terminal:
    """What is up to `end` may be shown now, and a step more."""
    return terminal.model_copy(update={"reserved_to": max(terminal.reserved_to, end + step)})


def settle(terminal: Terminal, end: int) -> Terminal:
    """Nothing after `end` was shown, and nobody shows anything more: the machine sleeps, the terminal has ended or the
    node stops. What comes up next finds no seam."""
    return terminal.model_copy(update={"reserved_to": min(terminal.reserved_to, end)})


# ── coming up ──
#
# The checkpoints of a machine lie on one line, since it always comes up from the newest: what a checkpoint remembers is
# the beginning of what its machine remembers now. So of the epochs the newest that knows a byte is right about it.


def decide_up(
    terminal: Terminal, guest_start: int, guest_end: int, generation: int, *, now: datetime | None = None
) -> tuple[Terminal, Seam | None]:
    """The record of a terminal whose guest holds the bytes from `guest_start` to `guest_end` after it came up as
    `generation`. Asked again for the same generation, at any time: the same.

    Whatever is not in the recording goes on after the seam, so that no byte is missing that is still there: the
    anchor is where the guest has the offset `seam.start`, and the screen before it is that of the recording up to
    there."""
    epoch = terminal.epoch
    if generation <= epoch.generation:
        return terminal, next((seam for seam in terminal.seams if seam.generation == generation), None)
    end = epoch.base + guest_end - epoch.anchor
    if end >= terminal.reserved_to:
        return _changed(terminal, now, epoch=epoch.model_copy(update={"generation": generation})), None
    held = epoch.base + guest_start - epoch.anchor
    # A guest that says less than can be true is taken to stand where its epoch began.
    start = max(min(max(terminal.recorded_to, held), end), epoch.base)
    seam = Seam(start=start, at=terminal.reserved_to, generation=generation)
    begun = Epoch(generation=generation, base=seam.at, anchor=min(epoch.anchor + start - epoch.base, guest_end))
    seams = (*terminal.seams, seam)[-SEAM_LIMIT:]
    return _changed(terminal, now, epoch=begun, seams=seams), seam


def forked(
    parent: Terminal, *, terminal: TerminalId, machine: MachineId, guest_end: int, generation: int, now: datetime
) -> Terminal:
    """The record of the same terminal in a fork that came up as `generation` from a checkpoint of the parent. Its
    offsets go on where the parent's were then: what is older is read from the parent's recording."""
    epoch = next((epoch for epoch in _epochs(parent) if epoch.anchor <= guest_end), Epoch(anchor=guest_end))
    end = to_offset(epoch, guest_end)
    return Terminal(
        id=terminal,
        machine=machine,
        name=parent.name,
        origin=parent.id,
        owner=parent.owner,
        command=parent.command,
        cols=parent.cols,
        rows=parent.rows,
        epoch=epoch.model_copy(update={"generation": generation}),
        reserved_to=end,
        recorded_to=min(parent.recorded_to, end),
        title=parent.title,
        created_at=now,
        changed_at=now,
    )


def _epochs(terminal: Terminal) -> Iterator[Epoch]:
    """Those that the record still tells of, newest first."""
    epoch = terminal.epoch
    yield epoch
    bases = [0, *(seam.at for seam in terminal.seams)]
    for seam, base in zip(reversed(terminal.seams), bases[-2::-1], strict=True):
        shift = seam.start - epoch.anchor  # from the guest's numbers to offsets, before this seam
        epoch = Epoch(generation=seam.generation - 1, base=base, anchor=base - shift)
        yield epoch


def _changed(terminal: Terminal, now: datetime | None, **fields: object) -> Terminal:
    moment = {} if now is None else {"changed_at": now}
    return terminal.model_copy(update={**fields, **moment})
