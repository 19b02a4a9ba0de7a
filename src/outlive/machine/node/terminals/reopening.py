"""How a terminal is taken up on this node: its journal, its screen, what its shell was doing.

Rule 1: a journal of this generation of the machine that is here is gone on with: the node was restarted. All else that
        is here is of the past: what of it is not in the object store yet goes there, and a new one is begun after it.
Rule 2: a screen that cannot be rebuilt is empty; that is said in the log, and no reason to have no terminal.
"""

import logging

import anyio.lowlevel
from pydantic import JsonValue

from outlive.base import FencedError, OutliveError
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.terminals.recorder import Recorder
from outlive.machine.node.terminals.spool import Spool, spool_folder
from outlive.machine.terminal.journal import Mark, Output, Resize, read_all
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.screen import Screen
from outlive.machine.terminal.status import Seam, Terminal

_log = logging.getLogger(__name__)


async def upload_leftovers(parts: NodeParts, recordings: Recordings, terminal: Terminal, generation: int) -> Terminal:
    """What an older generation of the machine has left here of its journal. The record as it is then."""
    spool = Spool.reopen(spool_folder(parts.path, terminal.id), terminal.id)
    if spool is None or spool.generation == generation:
        if spool is not None:
            spool.close()
        return terminal
    try:
        if spool.n > terminal.segments:  # else it went on elsewhere
            spool.cut(parts.clock.now())
            await recordings.upload(spool, holder=(parts.node, generation))
    except FencedError:
        raise
    except OutliveError as error:
        if error.is_retryable:
            raise
        _log.error("terminal %s: an older part of its recording is lost: %s", terminal.id, error.message)
    finally:
        spool.close()
    spool.discard()
    return await parts.terminals.get(terminal.id)


async def open_journal(parts: NodeParts, terminal: Terminal, generation: int) -> Spool:
    """The journal of a terminal whose record is of this generation."""
    folder, now = spool_folder(parts.path, terminal.id), parts.clock.now()
    spool = Spool.reopen(folder, terminal.id)
    if spool is not None and spool.generation != generation:
        spool.discard()
        spool = None
    is_new = spool is None
    if spool is None:
        newest = await parts.terminals.segments(terminal.id, after=terminal.segments - 1, limit=1)
        spool = Spool.begin(
            folder,
            terminal.id,
            n=terminal.segments + 1,
            offset=terminal.recorded_to,
            input_offset=newest[-1].input_end if newest else 0,
            generation=generation,
            at=now,
        )
        spool.append(Resize(now, spool.offset, terminal.cols, terminal.rows))
    base = terminal.epoch.base
    seam = next((each for each in terminal.seams if each.generation == generation), None)
    if spool.offset < base or (is_new and seam is not None):
        spool.append(Mark(now, base, "seam", None if seam is None else _words(seam)))
    return spool


def _words(seam: Seam) -> JsonValue:
    return {"from": seam.start, "at": seam.at, "generation": seam.generation}


async def rebuild(parts: NodeParts, recordings: Recordings, terminal: Terminal, spool: Spool) -> Screen:
    """The screen as it was when the journal ended."""
    screen = parts.screens.new(terminal.cols, terminal.rows)
    try:
        past = await recordings.read_screen(terminal, spool.offset, local=spool)
    except OutliveError as error:
        _log.error("terminal %s: its screen cannot be rebuilt: %s", terminal.id, error.message)
        return screen
    for record in past:
        if isinstance(record, Output):
            screen.feed(record.data)
        elif isinstance(record, Resize):
            screen.resize(record.cols, record.rows)
        else:
            screen.close()
            screen = parts.screens.new(record.cols, record.rows)
            screen.feed(record.drawing)
        await anyio.lowlevel.checkpoint()
    if (screen.cols, screen.rows) != (terminal.cols, terminal.rows):
        screen.resize(terminal.cols, terminal.rows)
    return screen


async def recall_marks(recorder: Recorder) -> None:
    """What the shell's marks said in what is still here: whether something runs, and what ran."""
    for n in recorder.spool.numbers():
        content = recorder.spool.content(n)
        for record in [] if content is None else read_all(content).records:
            if isinstance(record, Output):
                recorder.commands.take(recorder.marks.feed(record.offset, record.data))
        await anyio.lowlevel.checkpoint()
