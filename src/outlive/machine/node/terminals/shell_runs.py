"""Commands that are typed into a shell in a terminal, in an operator's name, and followed by its marks to their end.

Rule 1: as with `runs`, an effect is in the journal before anything is typed, and with its result after; it depends on
        no caller, and one who comes again finds it.
Rule 2: typed once. What is typed stands in the terminal's own journal under the effect's id before it is sent, and from
        there it reaches the program once: whoever finds it there types nothing.
Rule 3: it goes by the terminal's keyboard, as everybody does. What was not typed, because another holds the terminal or
        something runs there, is refused and may be asked for again; what was typed is followed to its end, whoever
        holds the terminal by then.
Rule 4: it is the whole line or it is not typed: a line that somebody has begun is given up first, and what is typed
        between the look at the line and the typing is noticed (`shell_desk`, `Keyboard.type`).
"""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Literal

import anyio
import anyio.abc

from outlive.base import (
    BrokenError,
    ConflictError,
    CrashPoint,
    EffectId,
    MachineId,
    OutliveError,
    TerminalId,
    UnavailableError,
    reach,
)
from outlive.machine.door import Output
from outlive.machine.guest_link import Guest
from outlive.machine.node.outputs import KeptStream, spool_of
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.runs import node_stops
from outlive.machine.node.terminals.contained import contain
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.node.terminals.shell_desk import ShellDesk
from outlive.machine.status import Effect, EffectState
from outlive.machine.terminal import lease as leases
from outlive.machine.terminal.door import RunInTerminal
from outlive.machine.terminal.marks import FoundMark
from outlive.machine.terminal.plain import plain_text
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.shell import INTERRUPT, Course, digest_of_run, keys_of

TAKEN_S = 5.0  # that a command may take to start after another has taken the terminal
_LOOK_EVERY_S = 1.0
_STOP_WITHIN_S = 5.0
_STORED_WITHIN_S = 60.0
_FOLLOW_EVERY_S = 0.2
_LOOKS = 8  # for a line in which nobody types before the command is
_SKEW = timedelta(minutes=1)  # of the clocks of two nodes

_log = logging.getLogger(__name__)

Outcome = Literal["over", "ended", "timeout", "lost"]


class ShellRun:
    """One effect on its way."""

    def __init__(self, desk: ShellDesk, request: RunInTerminal) -> None:
        self.desk = desk
        self.host = host = desk.host
        self.request = request
        self.digest = digest_of_run(host.terminal.id, request.command)
        self.effect: Effect | None = None
        self.course: Course | None = None
        self.group: int | None = None  # that was in front of the shell when its time was over
        self.marked = anyio.Event()
        self.done = anyio.Event()
        self.error: OutliveError | None = None

    def hear(self, marks: list[FoundMark]) -> None:
        if self.course is not None:
            self.course.take(marks)
        self.marked.set()

    async def result(self) -> Effect:
        await self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.effect is not None
        return self.effect


class ShellRuns:
    """All commands that are typed into terminals of this node."""

    def __init__(self, parts: NodeParts, recordings: Recordings, tasks: anyio.abc.TaskGroup) -> None:
        self._parts = parts
        self._recordings = recordings
        self._tasks = tasks
        self._runs: dict[tuple[MachineId, EffectId], ShellRun] = {}
        self._typing: dict[TerminalId, anyio.Lock] = {}  # one at a time looks for a prompt and types

    async def run(self, host: TerminalHost, request: RunInTerminal) -> Effect:
        return await self._carry(host, request).result()

    async def follow(self, host: TerminalHost, request: RunInTerminal) -> AsyncIterator[Output | Effect]:
        """The output as it is printed, escape sequences and all; the effect is last."""
        run = self._carry(host, request)
        position = 0
        is_over = False
        while not is_over:
            with anyio.move_on_after(_FOLLOW_EVERY_S):
                await run.done.wait()
            is_over = run.done.is_set()
            course = run.course
            is_readable = host.terminal.is_open or host.over.is_set()
            if course is not None and course.is_accepted and is_readable and run.error is None:
                start = course.output_start
                async for offset, data in run.desk.output(start + position, course.output_end):
                    yield Output("stdout", offset - start, data)
                    position = offset - start + len(data)
        yield await run.result()

    def find(self, machine: MachineId, effect: EffectId) -> ShellRun | None:
        return self._runs.get((machine, effect))

    def _carry(self, host: TerminalHost, request: RunInTerminal) -> ShellRun:
        host.resident.check()
        key = (host.resident.id, request.effect_id)
        run = self._runs.get(key)
        if run is None or run.host is not host:
            desk = ShellDesk(host, self._recordings, self._parts.terminals)
            run = self._runs[key] = ShellRun(desk, request)
            self._tasks.start_soon(self._run, run)
        elif run.digest != digest_of_run(host.terminal.id, request.command):
            raise ConflictError("effect.other_request", f"{request.effect_id!r} stands for another command.")
        return run

    async def _run(self, run: ShellRun) -> None:
        host, resident = run.host, run.host.resident
        host.listeners.append(run.hear)
        resident.commands += 1
        resident.is_dirty = True
        try:
            if not await contain(f"effect {run.request.effect_id}", lambda: self._try(run)):
                run.error = BrokenError(
                    "terminal.run_failed", "The command could not be followed; the log of the node says why."
                )
        finally:
            host.listeners.remove(run.hear)
            resident.commands -= 1
            resident.touch()
            if self._runs.get((resident.id, run.request.effect_id)) is run:
                del self._runs[resident.id, run.request.effect_id]
            if run.error is None and (run.effect is None or not run.effect.is_over):
                run.error = node_stops()
            run.done.set()

    async def _try(self, run: ShellRun) -> None:
        try:
            await self._carry_out(run)
        except OutliveError as error:
            run.error = error
        except OSError as error:  # of the spool: the host's disk is full, say. The effect stays begun.
            run.error = UnavailableError("node.spool", f"What was printed cannot be kept ({error.strerror}).")

    async def _carry_out(self, run: ShellRun) -> None:
        terminal = run.host.terminal.id
        typing = self._typing.setdefault(terminal, anyio.Lock())
        async with typing:
            try:
                await self._type_once(run)
            finally:
                if not typing.statistics().tasks_waiting:
                    self._typing.pop(terminal, None)
        if run.effect is None or run.effect.is_over:
            return
        outcome = await self._watch(run)
        if outcome == "timeout":
            await self._stop(run)
        elif outcome == "ended":  # what it printed is read from the object store
            with anyio.move_on_after(_STORED_WITHIN_S):
                await run.host.over.wait()
        await self._finish(run, outcome)

    # ── typing ──

    async def _type_once(self, run: ShellRun) -> None:
        host, request = run.host, run.request
        if await self._parts.effects.find(host.resident.id, request.effect_id) is not None:
            await self._begin(run)
            assert run.effect is not None
            if run.effect.is_over or await self._take_up(run, run.effect):
                return
        for _ in range(_LOOKS):
            line = await run.desk.wait_for_line(request.operator)
            keys = keys_of(request.command, line.shell)
            if run.effect is None:
                await self._begin(run)
                reach(CrashPoint.EXEC_AFTER_BEGIN)
            if run.effect is None or run.effect.is_over:
                return
            run.course = Course(request.effect_id, line.shell.prompt, host.recorder.offset)
            if await host.keyboard.type(request.operator, keys, request.effect_id, only_at=line.input):
                break
        else:
            raise UnavailableError("terminal.not_ready", f"Others type into {host.terminal.id!r} just now; try again.")
        reach(CrashPoint.EXEC_AFTER_START)

    async def _begin(self, run: ShellRun) -> None:
        parts, resident = self._parts, run.host.resident
        begun = await parts.effects.begin(
            resident.id,
            run.request.effect_id,
            node=parts.node,
            generation=resident.generation,
            digest=run.digest,
            at=parts.clock.now(),
        )
        run.effect = begun.effect

    async def _take_up(self, run: ShellRun, effect: Effect) -> bool:
        """Whether it was typed before: then it is followed from there."""
        host = run.host
        typed = await run.desk.find_typed(effect.id, effect.started_at - _SKEW)
        if typed is None:
            return False
        shell = await run.desk.look(typed.offset)
        run.course = Course(effect.id, shell.prompt, typed.offset)
        if any(seam.start <= typed.offset < seam.at for seam in host.terminal.seams):
            await self._finish(run, "lost")  # the machine does not remember it
            return True
        await run.desk.catch_up(run.course)
        return True

    # ── watching ──

    async def _watch(self, run: ShellRun) -> Outcome:
        host, course, clock = run.host, run.course, self._parts.clock
        assert course is not None
        looked_at = clock.monotonic()
        deadline = looked_at + self._left_s(run)
        taken_at: float | None = None
        while True:
            run.marked = anyio.Event()
            if course.phase == "over":
                return "over"
            if (ended := _ended(host)) is not None:
                return ended
            now = clock.monotonic()
            if host.resident.frozen:
                deadline += now - looked_at  # it does not run meanwhile
            looked_at = now
            if now >= deadline:
                return "timeout"
            held = host.terminal.lease
            is_ours = held is not None and held.operator == run.request.operator.id
            if is_ours:
                host.keyboard.used_at = now  # who waits for a command is no holder who is gone
            is_taken = course.phase == "typed" and held is not None and not is_ours
            taken_at = (taken_at or now) if is_taken else None
            if taken_at is not None and now - taken_at > TAKEN_S:
                leases.check_may_type(held, run.request.operator)
            with anyio.move_on_after(min(_LOOK_EVERY_S, deadline - now)):
                await run.marked.wait()

    def _left_s(self, run: ShellRun) -> float:
        """Of its timeout. One that was taken up in a later life of its machine has all of it again."""
        assert run.effect is not None
        if run.effect.generation != run.host.resident.generation:
            return run.request.timeout_s
        gone = self._parts.clock.now() - run.effect.started_at
        return run.request.timeout_s - gone.total_seconds()

    async def _stop(self, run: ShellRun) -> None:
        """Ctrl-C, then SIGKILL to what is in front of the shell, and last to who is left of what was there before: not
        all hear a Ctrl-C. Nothing, if another holds the terminal by then."""
        await _attempt(run, self._see_group)
        if run.course is not None and run.course.phase == "over":  # by itself meanwhile: what is in front is another
            return
        for stop in (self._interrupt, self._kill):
            run.marked = anyio.Event()
            await _attempt(run, stop)
            with anyio.move_on_after(_STOP_WITHIN_S):
                while run.course is not None and run.course.phase != "over" and _ended(run.host) is None:
                    await run.marked.wait()
                    run.marked = anyio.Event()
            if run.course is not None and run.course.phase == "over":
                break
        await _attempt(run, self._end_group)

    async def _see_group(self, run: ShellRun) -> None:
        async with run.host.resident.use() as guest:
            run.group = await _group_in_front(guest, run.host)

    async def _interrupt(self, run: ShellRun) -> None:
        await run.host.keyboard.type(run.request.operator, INTERRUPT)

    async def _kill(self, run: ShellRun) -> None:
        host = run.host
        async with host.resident.use() as guest:
            group = await _group_in_front(guest, host)
            leases.check_may_type(host.terminal.lease, run.request.operator)
            if group is not None:
                host.keyboard.note_signal(run.request.operator, signal.SIGKILL)
                await guest.terminals.signal(host.terminal.name, signal.SIGKILL)

    async def _end_group(self, run: ShellRun) -> None:
        host = run.host
        if run.group is None:
            return
        async with host.resident.use() as guest:
            leases.check_may_type(host.terminal.lease, run.request.operator)
            if await guest.terminals.end_group(host.terminal.name, run.group):
                host.keyboard.note_signal(run.request.operator, signal.SIGKILL)

    # ── its end ──

    async def _finish(self, run: ShellRun, outcome: Outcome) -> None:
        reach(CrashPoint.EXEC_BEFORE_RECORD)
        parts, host, course, effect = self._parts, run.host, run.course, run.effect
        assert course is not None
        assert effect is not None
        start, end = course.output_start, course.output_end
        stream = KeptStream(spool_of(parts.path, host.resident.id) / f"{effect.id}.terminal")
        missing = 0
        if outcome != "lost":
            end = host.recorder.offset if end is None else end
            async for offset, data in run.desk.output(start, end):
                stream.take(offset - start, data)
            missing = end - start - (stream.size - stream.missing)
        state, exit_code = _result(outcome, course, host)
        result = effect.model_copy(
            update={
                "state": state,
                "exit_code": exit_code,
                "stdout": plain_text(stream.text.encode()),
                "truncated": stream.is_longer or missing > 0,
                "cut_bytes": missing,
                "stdout_blob": await stream.store(parts.objects),
                "ended_at": parts.clock.now(),
                "terminal": host.terminal.id,
                "output_start": start,
                "output_end": end,
            }
        )
        run.effect = await parts.effects.finish(result, holder=(parts.node, host.resident.generation))
        reach(CrashPoint.EXEC_AFTER_RECORD)
        stream.discard()


async def _attempt(run: ShellRun, stop: Callable[[ShellRun], Awaitable[None]]) -> None:
    try:
        await stop(run)
    except OutliveError as error:
        _log.info("effect %s is not stopped: %s", run.request.effect_id, error.message)


async def _group_in_front(guest: Guest, host: TerminalHost) -> int | None:
    facts = {each.terminal: each for each in await guest.terminals.list()}.get(host.terminal.name)
    return None if facts is None or facts.foreground is None else facts.foreground.group


def _result(outcome: Outcome, course: Course, host: TerminalHost) -> tuple[EffectState, int | None]:
    if outcome == "ended":  # the shell is gone, with it or by it
        terminal = host.terminal
        if terminal.state != "exited":
            return "lost", None
        return "finished", terminal.exit_code if terminal.signal is None else 128 + terminal.signal
    if outcome == "lost":
        return "lost", None
    return ("timeout" if outcome == "timeout" else "finished"), course.exit_code


def _ended(host: TerminalHost) -> Outcome | None:
    """How nothing more can come. Raises if it may go on elsewhere, or later."""
    if host.resident.ended == "lost":
        return "lost"
    if host.resident.ended is not None:
        host.resident.check()
    if not host.terminal.is_open:
        return "ended"
    if host.over.is_set():
        raise UnavailableError("terminal.not_ready", f"Terminal {host.terminal.id!r} is not ready; try again.")
    return None
