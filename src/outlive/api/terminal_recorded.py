"""Terminals as their recordings have them: an attachment to one that has ended, and the screen at its newest offset.

No machine is needed for it, and none is woken.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Literal, NamedTuple

import anyio.to_thread

from outlive.api.parts import TerminalParts
from outlive.machine.caller import closing
from outlive.machine.terminal.frames import (
    Channel,
    Frame,
    final_exit,
    final_failure,
    status_attached,
    status_exit,
    status_gap,
    status_offset,
    status_seam,
)
from outlive.machine.terminal.journal import Output, Resize, Snapshot
from outlive.machine.terminal.recording import Gap, LocalJournal, Piece
from outlive.machine.terminal.screen import Screens
from outlive.machine.terminal.status import Seam, Terminal

_PIECE = 256 * 1024


class RecordedStream:
    """A `FrameStream`: what is left of the recording, then how it ended. Takes nothing that is typed."""

    def __init__(self, terminals: TerminalParts, terminal: Terminal, offset: int | None) -> None:
        self._frames = _frames(terminals, terminal, offset)

    async def send(self, channel: Channel, payload: bytes) -> None:
        pass

    async def receive(self) -> tuple[Channel, bytes] | None:
        return await anext(self._frames, None)

    async def aclose(self) -> None:
        async with closing(self._frames):
            pass


async def _frames(terminals: TerminalParts, terminal: Terminal, offset: int | None) -> AsyncIterator[Frame]:
    if offset is None:
        offset = terminal.recorded_to
        drawing = (await screen_of(terminals, terminal, "vt")).content
        yield Frame(Channel.STATUS, status_attached(terminal, offset, is_screen=True))
        for at in range(0, len(drawing), _PIECE):
            yield Frame(Channel.OUTPUT, drawing[at : at + _PIECE])
        yield Frame(Channel.STATUS, status_offset(offset))
    else:
        yield Frame(Channel.STATUS, status_attached(terminal, offset))
        async with closing(terminals.recordings.read_output(terminal, offset)) as pieces:
            async for piece in pieces:
                for frame in _told(terminal, piece):
                    yield frame
    for frame in end_of(terminal):
        yield frame


def _told(terminal: Terminal, piece: Piece | Gap) -> list[Frame]:
    if isinstance(piece, Piece):
        return [Frame(Channel.OUTPUT, piece.data)]
    told = status_gap(piece.start, piece.end)
    if piece.is_rolled_back:
        generation = next((seam.generation for seam in terminal.seams if seam.at == piece.end), 0)
        told = status_seam(Seam(start=piece.start, at=piece.end, generation=generation))
    return [Frame(Channel.STATUS, told), Frame(Channel.STATUS, status_offset(piece.end))]


def end_of(terminal: Terminal) -> list[Frame]:
    """How a terminal that is over ended, as its clients are told."""
    if terminal.state == "exited":
        final = final_exit(terminal.exit_code, terminal.signal)
    else:
        message = terminal.reason or f"The terminal is {terminal.state}."
        final = final_failure(f"terminal.{terminal.state}", message, terminal=terminal.id)
    return [Frame(Channel.STATUS, status_exit(terminal.exit_code, terminal.signal)), Frame(Channel.FINAL, final)]


class Shown(NamedTuple):
    cols: int
    rows: int
    content: bytes


async def screen_of(
    terminals: TerminalParts, terminal: Terminal, form: Literal["text", "vt"], local: LocalJournal | None = None
) -> Shown:
    """The screen at the end of what was recorded: as text, or as what draws it."""
    found = await terminals.recordings.read_screen(terminal, terminal.recorded_to, local=local)
    # It may be megabytes that have to be shown again: not on the loop that carries everybody's keystrokes.
    return await anyio.to_thread.run_sync(_show, terminals.screens, terminal, found, form)


def _show(
    screens: Screens, terminal: Terminal, found: Sequence[Snapshot | Output | Resize], form: Literal["text", "vt"]
) -> Shown:
    screen = screens.new(terminal.cols, terminal.rows)
    try:
        for each in found:
            if not isinstance(each, Output):
                screen.resize(each.cols, each.rows)
            if not isinstance(each, Resize):
                screen.feed(each.data if isinstance(each, Output) else each.drawing)
        return Shown(screen.cols, screen.rows, screen.draw() if form == "vt" else screen.text().encode())
    finally:
        screen.close()
