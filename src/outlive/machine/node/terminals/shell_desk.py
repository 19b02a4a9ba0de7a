"""A shell in a terminal as one who operates it needs it: what it shows, whether it waits for a line, what was typed.

It acts by the terminal's keyboard alone, as everybody does.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

import anyio

from outlive.base import ConflictError, EffectId, InvalidError
from outlive.machine.caller import closing
from outlive.machine.guest_link import LineFacts
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.terminal import epochs
from outlive.machine.terminal import lease as leases
from outlive.machine.terminal.journal import Input
from outlive.machine.terminal.marks import Marks
from outlive.machine.terminal.recording import Gap, Recordings
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.shell import (
    INTERRUPT,
    LOOK_BACK,
    Course,
    Shell,
    busy,
    decide_line,
    line_not_free,
    no_prompt,
    read_shell,
)
from outlive.machine.terminal.status import Operator

PROMPT_WITHIN_S = 15.0
_LOOK_AGAIN_S, _SETTLE_S = 0.01, 0.3  # how long a shell may take to wait for keys; later each time
_PAGE = 64


class Line(NamedTuple):
    """Of a shell: what is typed into it is all of it, if that begins at the byte `input` of the input."""

    shell: Shell
    input: int


class Seen(NamedTuple):
    shell: Shell
    last: Input | None  # what was typed last, if that is known
    input: int  # bytes typed since birth
    unread: int | None
    is_waiting: bool  # it has read all that was typed, and waits for more

    def refusal(self) -> ConflictError:
        is_shell = self.shell.phase == "prompt"
        return line_not_free(self.last, self.unread) if is_shell else no_prompt(PROMPT_WITHIN_S)


class ShellDesk:
    def __init__(self, host: TerminalHost, recordings: Recordings, records: TerminalRecords) -> None:
        self.host = host
        self._recordings = recordings
        self._records = records
        self._typed_before: tuple[int, Input | None] | None = None

    async def output(self, start: int, end: int | None = None) -> AsyncIterator[tuple[int, bytes]]:
        """What is recorded from `start` to `end`, or to now, in pieces with their offsets."""
        host = self.host
        is_stored = host.over.is_set()
        pieces = self._recordings.read_output(host.terminal, start) if is_stored else host.history(start)
        async with closing(pieces) as found:
            async for piece in found:
                if isinstance(piece, Gap):
                    continue
                if end is not None and piece.offset >= end:
                    return
                yield piece.offset, piece.data if end is None else piece.data[: end - piece.offset]

    async def look(self, end: int | None = None) -> Shell:
        """What the shell does now, or did when the output ended at `end`."""
        until = self.host.recorder.offset if end is None else end
        at = max(0, until - LOOK_BACK)
        data = bytearray()
        async for offset, piece in self.output(at, until):
            if offset != at + len(data):
                at = offset
                data.clear()
            data += piece
        return read_shell(at, bytes(data))

    async def catch_up(self, course: Course) -> None:
        """With what came since it was typed. What comes meanwhile it hears too: twice the same is once."""
        marks = Marks()
        async for offset, data in self.output(course.typed_at):
            course.take(marks.feed(offset, data))

    async def find_typed(self, effect: EffectId, since: datetime) -> Input | None:
        """What was typed for this effect, which was begun no earlier than `since`."""
        host = self.host
        start = await self._offset_at(since)
        async for record in self._recordings.read_records(host.terminal, start, local=host.recorder.spool):
            if isinstance(record, Input) and record.effect_id == effect:
                return record
        return None

    async def _offset_at(self, moment: datetime) -> int:
        """From which offset on the recording holds what happened after this moment."""
        after = 0
        while page := await self._records.segments(self.host.terminal.id, after=after, limit=_PAGE):
            for segment in page:
                if segment.ended_at >= moment:
                    return segment.start
            after = page[-1].n
        return self.host.terminal.recorded_to

    async def wait_for_line(self, operator: Operator) -> Line:
        """A line of the shell that nobody has begun, where nobody but the operator can type any more; or a refusal.

        A line that somebody has left there is given up, as with Ctrl-C: once for each prompt, and only while the shell
        waits for keys. So it acts on it at once, and not on what is typed next.
        """
        host = self.host
        leases.check_open(host.terminal)
        leases.check_may_type(host.terminal.lease, operator)
        await host.resident.wake_up()
        self._check_idle(await self.look())
        await host.keyboard.hold_to_run(operator)
        given_up: Line | None = None
        deadline, pause_s = anyio.current_time() + PROMPT_WITHIN_S, _LOOK_AGAIN_S
        while True:
            seen = await self._look_closely()
            leases.check_may_type(host.terminal.lease, operator)
            self._check_idle(seen.shell)
            do = decide_line(
                seen.shell,
                seen.last,
                is_waiting=seen.is_waiting,
                is_first=seen.input == 0,
                is_given_up=given_up is not None and seen.input == given_up.input,
            )
            if do == "type":
                return Line(seen.shell, seen.input)
            if anyio.current_time() >= deadline:
                raise seen.refusal()
            if do == "give_up" and (given_up is None or given_up.shell.prompt_at != seen.shell.prompt_at):
                if await host.keyboard.type(operator, INTERRUPT, only_at=seen.input):
                    given_up = Line(seen.shell, seen.input + len(INTERRUPT))
                pause_s = _LOOK_AGAIN_S
            await self._wait_for_marks(pause_s)
            pause_s = min(2 * pause_s, _SETTLE_S)

    async def _look_closely(self) -> Seen:
        """What the guest says of the line, and then what is shown: all that the shell had printed by then."""
        host = self.host
        line = await self._ask_guest()
        is_all_typed = line.input == host.keyboard.typed_to
        is_all_here = host.recorder.offset >= epochs.to_offset(host.terminal.epoch, line.end)  # else it is on its way
        shell, last = await self.look(), await self._last_typed(line.input)
        return Seen(shell, last, line.input, line.unread, line.is_waiting and is_all_typed and is_all_here)

    async def _ask_guest(self) -> LineFacts:
        host = self.host
        async with host.resident.use() as guest:
            try:
                return await guest.terminals.line(host.terminal.name)
            except InvalidError as error:
                if error.code != "machine.unknown_verb":
                    raise
        # It was started by an older version, and sleeps and wakes ever since: what is shown has to do.
        end = epochs.to_guest(host.terminal.epoch, host.recorder.offset) or host.terminal.epoch.anchor
        return LineFacts(unread=None, is_waiting=True, input=host.keyboard.typed_to or 0, end=end)

    async def _last_typed(self, end: int) -> Input | None:
        """What was typed up to the byte `end` of the input: it may be older than this process, or than a fork."""
        host = self.host
        newest = host.keyboard.newest
        if newest is not None and newest.input_end == end:
            return newest
        if self._typed_before is None or self._typed_before[0] != end:
            found = await self._recordings.read_input(host.terminal, end, local=host.recorder.spool) if end else None
            self._typed_before = end, found
        return self._typed_before[1]

    def _check_idle(self, shell: Shell) -> None:
        if shell.phase == "running":
            running = self.host.recorder.commands.running
            raise busy(None if running is None else running.command_line)

    async def _wait_for_marks(self, within_s: float) -> None:
        heard = anyio.Event()

        def hear(_: object) -> None:
            heard.set()

        self.host.listeners.append(hear)
        try:
            with anyio.move_on_after(within_s):
                await heard.wait()
        finally:
            self.host.listeners.remove(hear)
