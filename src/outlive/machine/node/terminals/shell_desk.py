"""A shell in a terminal as one who operates it needs it: what it shows, whether it waits for a line, what was typed.

It acts by the terminal's keyboard alone, as everybody does.
"""

import math
from collections.abc import AsyncIterator
from datetime import datetime

import anyio

from outlive.base import EffectId
from outlive.machine.caller import closing
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.terminal import lease as leases
from outlive.machine.terminal.journal import Input
from outlive.machine.terminal.marks import Marks
from outlive.machine.terminal.recording import Gap, Recordings
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.shell import INTERRUPT, LOOK_BACK, Course, Shell, busy, no_prompt, read_shell
from outlive.machine.terminal.status import Operator

PROMPT_WITHIN_S = 15.0
_SETTLE_S = 0.3  # that a line somebody entered may take to become a command
_AGAIN_S = 1.0
_PAGE = 64


class ShellDesk:
    def __init__(self, host: TerminalHost, recordings: Recordings, records: TerminalRecords) -> None:
        self.host = host
        self._recordings = recordings
        self._records = records

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

    async def wait_for_line(self, operator: Operator) -> Shell:
        """The shell at an empty prompt, where nobody but the operator can type any more; or a refusal.

        A line that somebody has left there is given up, as with Ctrl-C.
        """
        host = self.host
        leases.check_open(host.terminal)
        leases.check_may_type(host.terminal.lease, operator)
        await host.resident.wake_up()
        self._check_idle(await self.look())
        await host.keyboard.hold_to_run(operator)
        given_up: str | None = None  # the prompt whose line it was
        asked_at = -math.inf
        with anyio.move_on_after(PROMPT_WITHIN_S):
            while True:
                shell, end = await self.look(), host.recorder.offset
                self._check_idle(shell)
                is_fresh = given_up is not None and shell.prompt != given_up
                if shell.phase == "prompt" and (shell.is_untouched or is_fresh):
                    return shell
                await self._wait_for_marks()
                is_still = host.recorder.offset == end and anyio.current_time() - asked_at > _AGAIN_S
                if shell.phase == "prompt" and is_still:
                    # More than once: a shell that is busy with keys when it is interrupted acts on the next one.
                    given_up, asked_at = shell.prompt, anyio.current_time()
                    await host.keyboard.type(operator, INTERRUPT)
        raise no_prompt(PROMPT_WITHIN_S)

    def _check_idle(self, shell: Shell) -> None:
        if shell.phase == "running":
            running = self.host.recorder.commands.running
            raise busy(None if running is None else running.command_line)

    async def _wait_for_marks(self) -> None:
        heard = anyio.Event()

        def hear(_: object) -> None:
            heard.set()

        self.host.listeners.append(hear)
        try:
            with anyio.move_on_after(_SETTLE_S):
                await heard.wait()
        finally:
            self.host.listeners.remove(hear)
