"""The ledger of commands: each effect id runs once. Asked again, the guest says how it stands; it starts nothing.

A command is over when its first process exits; children that it left in the background live on. What it printed stays
here until the host acknowledges it, and the entry itself until the host says `forget`. All of it is in memory, bounded,
and goes along in a checkpoint.
"""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from outlive.guest.groups import end_group
from outlive.guest.input import Input
from outlive.guest.loop import Loop, Timer
from outlive.guest.output import Budget, Output, Purse
from outlive.guest.refusal import RefusalError
from outlive.guest.spawn import Program, spawn
from outlive.guest.stream import Stream
from outlive.guest.wire import Words

ENTRY_LIMIT = 4096
RUNNING_LIMIT = 512
LINGERING_LIMIT = 1024  # pipes that a child in the background keeps open after its command is over
_GRACE_S = 2.0
_DRAIN_S = 0.05


class Wish(NamedTuple):
    """What a command is to be."""

    program: Program
    timeout_s: float | None
    output_limit: int
    has_stdin: bool


class Running:
    """One entry of the ledger, also long after it has exited."""

    def __init__(self, effect: str, wish: Wish, loop: Loop, purse: Purse) -> None:
        self.effect = effect
        self._loop = loop
        self._begun = loop.now()
        self._timer: Timer | None = None
        self._status: int | None = None
        self._is_timed_out = False
        self.exit: Words | None = None
        self.waiters: list[Callable[[Words], None]] = []
        budget = Budget(wish.output_limit, purse)
        self.pid, self.stdin, (self.stdout, self.stderr) = _start(wish, loop, budget)
        for output in self.outputs:
            output.on_closed = self._look
        if wish.timeout_s is not None:
            self._timer = loop.after(wish.timeout_s, self._time_out)
        self.on_exit: Callable[[Running], None] = lambda _: None

    @property
    def outputs(self) -> tuple[Output, Output]:
        return (self.stdout, self.stderr)

    def describe(self) -> Words:
        return {
            "effect": self.effect,
            "exit": self.exit,
            "stdout": self.stdout.size,
            "stderr": self.stderr.size,
            "stdin": self.stdin.taken if self.stdin is not None and self.stdin.is_open else None,
        }

    def kill(self, number: int) -> None:
        if self._status is not None:
            raise RefusalError("conflict", "command_over", f"The command {self.effect!r} has exited.")
        if number == signal.SIGKILL:
            end_group(self._loop, self.pid)
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _time_out(self) -> None:
        self._is_timed_out = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        self._timer = self._loop.after(_GRACE_S, lambda: self.kill(signal.SIGKILL))

    def before_reaped(self) -> None:
        """The first process is dead and its id not yet free: nobody else's group can have it."""
        if self._is_timed_out:
            end_group(self._loop, self.pid)

    def reaped(self, status: int) -> None:
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        if self.stdin is not None:
            self.stdin.close()
        for output in self.outputs:
            output.drain()
        self._look()
        if self.exit is None:
            # Somebody else has the pipe: perhaps the end of a pipeline that is about to end, perhaps a server.
            self._timer = self._loop.after(_DRAIN_S, self._finish)

    def _look(self) -> None:
        if self._status is not None and not any(output.is_open for output in self.outputs):
            self._finish()

    def _finish(self) -> None:
        if self.exit is not None or self._status is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        code = os.waitstatus_to_exitcode(self._status)
        self.exit = {
            "reason": "timeout" if self._is_timed_out else "signal" if code < 0 else "exited",
            "code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "stdout": self.stdout.size,
            "stderr": self.stderr.size,
            "stdout_cut": self.stdout.cut,
            "stderr_cut": self.stderr.cut,
            "seconds": self._loop.now() - self._begun,
        }
        for output in self.outputs:
            output.finish()
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(self.exit)
        self.on_exit(self)


def _start(wish: Wish, loop: Loop, budget: Budget) -> tuple[int, Input | None, tuple[Output, Output]]:
    theirs: list[int] = []
    ours: list[int] = []
    try:
        for is_input in (True, False, False):
            if is_input and not wish.has_stdin:
                theirs.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
                continue
            read, write = os.pipe2(os.O_CLOEXEC)
            theirs.append(read if is_input else write)
            ours.append(write if is_input else read)
        pid = spawn(wish.program, *theirs)
    except OSError as error:
        _close(ours)
        raise RefusalError("exhausted", "no_descriptors", "The guest has no descriptors left.") from error
    except RefusalError:
        _close(ours)
        raise
    finally:
        _close(theirs)
    stdin = Input(loop, ours[0], is_pipe=True) if wish.has_stdin else None
    return pid, stdin, (Output(loop, ours[-2], budget), Output(loop, ours[-1], budget))


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Commands:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._purse = Purse()
        self._entries: dict[str, Running] = {}
        self._by_pid: dict[int, Running] = {}
        self._lingering: dict[Output, None] = {}

    @property
    def running(self) -> int:
        return sum(entry.exit is None for entry in self._entries.values())

    @property
    def pids(self) -> Mapping[int, Running]:
        return self._by_pid

    def summary(self) -> Words:
        running = self.running
        return {"running": running, "exited": len(self._entries) - running}

    def page(self, after: str, limit: int) -> list[Words]:
        """The entries in the order of their ids."""
        names = sorted(name for name in self._entries if name > after)
        return [self._entries[name].describe() for name in names[:limit]]

    def find(self, effect: str) -> Running | None:
        return self._entries.get(effect)

    def get(self, effect: str) -> Running:
        entry = self._entries.get(effect)
        if entry is None:
            raise RefusalError("not_found", "effect_unknown", f"The guest does not hold the effect {effect!r}.")
        return entry

    def start(self, effect: str, wish: Wish) -> Running:
        if len(self._entries) >= ENTRY_LIMIT:
            raise RefusalError("exhausted", "ledger_full", f"The guest holds {ENTRY_LIMIT} effects: forget some.")
        if len(self._by_pid) >= RUNNING_LIMIT:
            raise RefusalError("exhausted", "too_many_commands", f"{RUNNING_LIMIT} commands are running.")
        entry = Running(effect, wish, self._loop, self._purse)
        entry.on_exit = self._linger
        self._entries[effect] = entry
        self._by_pid[entry.pid] = entry
        return entry

    def acknowledge(self, effect: str, stdout: int, stderr: int) -> None:
        entry = self.get(effect)
        entry.stdout.acknowledge(stdout)
        entry.stderr.acknowledge(stderr)
        self._unhold()

    def forget(self, effect: str) -> None:
        entry = self._entries.get(effect)
        if entry is None:
            return
        if entry.exit is None:
            raise RefusalError("conflict", "command_runs", f"The command {effect!r} is still running.")
        del self._entries[effect]
        for output in entry.outputs:
            output.let_all_go()
        self._unhold()

    def _unhold(self) -> None:
        for entry in self._by_pid.values():
            for output in entry.outputs:
                output.unhold()

    def _linger(self, entry: Running) -> None:
        for output in entry.outputs:
            if output.is_open:
                self._lingering[output] = None
                output.on_closed = partial(self._lingering.pop, output, None)
        while len(self._lingering) > LINGERING_LIMIT:
            next(iter(self._lingering)).close()

    def before_reaped(self, pid: int) -> None:
        if (entry := self._by_pid.get(pid)) is not None:
            entry.before_reaped()

    def reaped(self, pid: int, status: int) -> bool:
        """Whether it was one of ours."""
        entry = self._by_pid.pop(pid, None)
        if entry is not None:
            entry.reaped(status)
        return entry is not None


def attach(entry: Running, streams: Mapping[str, Stream], stdout_from: int, stderr_from: int) -> Words:
    """Join an entry to the streams that were opened for it. Says where each begins."""
    said: Words = {}
    if "stdin" in streams:
        if entry.stdin is None:
            raise RefusalError("conflict", "no_stdin", f"The command {entry.effect!r} was started without stdin.")
        said["stdin_at"] = entry.stdin.attach(streams["stdin"])
    if "stdout" in streams:
        said["stdout_at"] = entry.stdout.attach(streams["stdout"], stdout_from)
    if "stderr" in streams:
        said["stderr_at"] = entry.stderr.attach(streams["stderr"], stderr_from)
    return said
