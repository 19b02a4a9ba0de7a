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


def reserve(terminal: Terminal, end: int) -> Terminal:
    """What is up to `end` may be shown now, and a step more."""
    return terminal.model_copy(update={"reserved_to": max(terminal.reserved_to, end + RESERVE_STEP)})


def settle(terminal: Terminal, end: int) -> Terminal:
    """Nothing after `end` was shown, and nobody shows anything more: the machine sleeps, the terminal has ended or the
    node stops. What comes up next finds no seam."""
    return terminal.model_copy(update={"reserved_to": min(terminal.reserved_to, end)})


# ── coming up ──


def decide_up(
    terminal: Terminal,
    guest_start: int,
    guest_end: int,
    generation: int,
    *,
    came_from: int | None = None,
    now: datetime | None = None,
) -> tuple[Terminal, Seam | None]:
    """The record of a terminal whose guest holds the bytes from `guest_start` to `guest_end` after it came up as
    `generation`, from a checkpoint made in the generation `came_from`. Again for the same generation: the same.

    Whatever is not in the recording goes on after the seam, so that no byte is missing that is still there: the
    anchor is where the guest has the offset `seam.start`, and the screen before it is that of the recording up to
    there."""
    if generation <= terminal.epoch.generation:
        return terminal, next((seam for seam in terminal.seams if seam.generation == generation), None)
    epoch = _epoch_of(terminal, came_from, guest_end)
    end = epoch.base + guest_end - epoch.anchor
    is_newest = (epoch.base, epoch.anchor) == (terminal.epoch.base, terminal.epoch.anchor)
    if is_newest and end >= terminal.reserved_to:
        goes_on = terminal.epoch.model_copy(update={"generation": generation})
        return _changed(terminal, now, epoch=goes_on), None
    start = end
    if is_newest:
        recorded = max(terminal.recorded_to, epoch.base)
        held = epoch.base + guest_start - epoch.anchor
        start = min(max(recorded, held), end)
    seam = Seam(start=start, at=terminal.reserved_to, generation=generation)
    anchor = epoch.anchor + start - epoch.base
    begun = Epoch(generation=generation, base=seam.at, anchor=anchor)
    seams = (*terminal.seams, seam)[-SEAM_LIMIT:]
    return _changed(terminal, now, epoch=begun, seams=seams), seam


def forked(
    parent: Terminal,
    *,
    terminal: TerminalId,
    machine: MachineId,
    guest_end: int,
    generation: int,
    came_from: int | None = None,
    now: datetime,
) -> Terminal:
    """The record of the same terminal in a fork that came up as `generation` from a checkpoint of the parent's
    generation `came_from`. Its offsets go on where the parent's were then: what is older is read from the parent."""
    epoch = _epoch_of(parent, came_from, guest_end)
    end = epoch.base + guest_end - epoch.anchor
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


def _epoch_of(terminal: Terminal, came_from: int | None, guest_end: int) -> Epoch:
    """The one by which a checkpoint of that generation is to be read. Not known: the newest that can be."""
    found = terminal.epoch
    for epoch, begun in _epochs(terminal):
        found = epoch
        if begun <= came_from if came_from is not None else epoch.anchor <= guest_end:
            break
    # A guest that says less than can be true is read as if it stood at the beginning of its epoch.
    return found if guest_end >= found.anchor else found.model_copy(update={"anchor": guest_end})


def _epochs(terminal: Terminal) -> Iterator[tuple[Epoch, int]]:
    """Those that the record still tells of, newest first, each with the generation that began it."""
    epoch = terminal.epoch
    for seam, before in zip(reversed(terminal.seams), (*reversed(terminal.seams[:-1]), None), strict=True):
        yield epoch, seam.generation
        shift = seam.start - epoch.anchor  # of the one that the seam has ended
        base = before.at if before is not None else 0
        epoch = Epoch(generation=seam.generation - 1, base=base, anchor=base - shift)
    yield epoch, 0


def _changed(terminal: Terminal, now: datetime | None, **fields: object) -> Terminal:
    moment = {} if now is None else {"changed_at": now}
    return terminal.model_copy(update={**fields, **moment})
