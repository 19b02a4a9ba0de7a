"""Terminals: a program on a PTY, its output with byte offsets from birth, the newest MiB of it kept.

A terminal belongs to nobody: it lives without anyone attached, any number may attach, and each gets every byte from the
offset it names or is told that there is a gap. One of them may be its recorder, and from then on no byte is dropped
that a recorder has not acknowledged: with a ring full of such bytes the PTY is not read, and the program waits. Asked
to open an id that is there, the guest gives that one. The exit code and the ring stay until the host closes it.
"""

import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from outlive.guest.foreground import Foreground, is_asleep
from outlive.guest.groups import end_group
from outlive.guest.input import Input
from outlive.guest.kept import Ring
from outlive.guest.loop import Loop, Timer
from outlive.guest.refusal import RefusalError
from outlive.guest.spawn import Program
from outlive.guest.stream import Stream
from outlive.guest.tty import Size, set_size, start, unread_keys
from outlive.guest.wire import Words

TERMINAL_LIMIT = 64
ATTACHMENT_LIMIT = 16
RING_SIZE = 1024 * 1024
_READ_SIZE = 64 * 1024
_READS_AT_ONCE = 4
_READS_TO_CATCH_UP = 64
_DRAIN_S = 0.05
_LOOK_AGAIN_S = 0.5
_GRACE_S = 2.0


class Attachment:
    """One reader of a terminal, at its own offset. Ends when it has all, once `is_over` says that no more comes."""

    def __init__(self, ring: Ring, stream: Stream, offset: int, is_over: Callable[[], bool]) -> None:
        self._ring = ring
        self._is_over = is_over
        self.stream = stream
        self._sent = offset
        stream.on_room = self.push

    def push(self) -> None:
        if self._sent < self._ring.start:
            self.stream.reset()  # too slow: it comes back, and is told of the gap
            return
        while self._sent < self._ring.end and (room := self.stream.room()):
            self._sent += self.stream.send(self._ring.read(self._sent, room))
        if self._sent == self._ring.end and self._is_over():
            self.stream.end()


class Terminal:
    def __init__(self, identity: str, program: Program, size: Size, loop: Loop) -> None:
        self.id = identity
        self._loop = loop
        self._ring = Ring(RING_SIZE)
        self._attachments: list[Attachment] = []
        self._recorder: Attachment | None = None
        self.size = size
        self.output_at = loop.now()
        self.pid, self._master, self._slave, lookout = start(program, size)
        self.foreground = Foreground(loop, self._master, self.pid, lookout)
        self._input = Input(loop, self._master, is_pipe=False)
        self._input.on_wait = self._watch
        self._status: int | None = None
        self._timer: Timer | None = None
        self.exit: Words | None = None
        self.waiters: list[Callable[[Words], None]] = []
        self.is_open = True  # the PTY is
        self._watch()

    def describe(self, foreground: Words | None = None) -> Words:
        return {
            "terminal": self.id,
            "pid": self.pid,
            "columns": self.size.columns,
            "rows": self.size.rows,
            "start": self._ring.start,
            "end": self._ring.end,
            "input": self._input.taken,
            "output_ago_s": max(0.0, self._loop.now() - self.output_at),
            "exit": self.exit,
            "foreground": foreground,
        }

    def look_at_line(self, foreground: Words | None) -> Words:
        """Whether what is in front waits, has read all keys, and has printed (up to `end`) what it had to say to them.
        Keys come from here alone: what is true now stays true until more are taken."""
        in_pty = unread_keys(self._slave) if self.is_open else None
        unread = None if in_pty is None else in_pty + self._input.unwritten
        group = self.pid if foreground is None else foreground["group"]
        is_waiting = unread == 0 and isinstance(group, int) and is_asleep(group) and self._catch_up()
        return {"unread": unread, "is_waiting": is_waiting, "input": self._input.taken, "end": self._ring.end}

    # Operators

    def attach(self, stream: Stream, offset: int | None, *, is_recorder: bool = False) -> Words:
        """From `offset`, or from now; says where it begins, and whether bytes before that are gone."""
        self._attachments = [known for known in self._attachments if not known.stream.is_gone]
        if not is_recorder and len(self._attachments) - (self._recorder in self._attachments) >= ATTACHMENT_LIMIT:
            raise RefusalError("exhausted", "too_many_attachments", f"{ATTACHMENT_LIMIT} are attached to {self.id!r}.")
        wanted = self._ring.end if offset is None else offset
        at = min(max(wanted, self._ring.start), self._ring.end)
        attached = Attachment(self._ring, stream, at, lambda: self.exit is not None)
        self._attachments.append(attached)
        if is_recorder:
            self._record(attached, at)
        self._loop.soon(self._push)
        return {"at": at, "is_gap": at > wanted}

    def _record(self, recorder: Attachment, at: int) -> None:
        """The newest wins. What it did not ask for is safe: it would not come back for less."""
        if self._recorder is not None:
            self._recorder.stream.reset()
        self._recorder = recorder
        self._ring.record_from(at)
        self._go_on()

    def acknowledge(self, offset: int) -> None:
        self._ring.acknowledge(offset)
        self._go_on()

    def attach_input(self, stream: Stream) -> int:
        return self._input.attach(stream)

    def drop_input(self, upto: int) -> Words:
        """Give up what was typed and not yet written to the PTY. `at`: nothing from there on was written."""
        return {"at": self._input.drop(upto), "input": self._input.taken}

    def resize(self, size: Size) -> None:
        self.size = size
        if self.is_open:
            set_size(self._master, size)
            self.foreground.resized()

    def kill(self, number: int) -> None:
        """To what runs in the foreground."""
        if not self.is_open:
            raise RefusalError("conflict", "terminal_over", f"The program of {self.id!r} has exited.")
        self.foreground.kill(number)

    def end_group(self, group: int) -> bool:
        """Who is left of what was in front, and may be there no more. Whether somebody was."""
        return group != self.pid and self.foreground.end(group)

    def hang_up(self) -> None:
        self._ring.record_no_more()  # nobody can acknowledge it any more
        self._go_on()
        if self._status is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGHUP)
            self._timer = self._loop.after(_GRACE_S, lambda: end_group(self._loop, self.pid))

    # The PTY

    def _watch(self) -> None:
        if self.is_open:
            read = self._read if self._ring.room else None
            write = self._input.flush if self._input.has_pending else None
            self._loop.watch(self._master, read=read, write=write)

    def _go_on(self) -> None:
        """There may be room again."""
        if self.is_open and self._timer is None:
            if self._status is None:
                self._watch()
            else:
                self._drain()

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if not self._read_once():
                break
        if not self._ring.room:
            self._watch()
        self._push()

    def _catch_up(self) -> bool:
        """Whether all that was printed is in the ring."""
        is_level = False
        for _ in range(_READS_TO_CATCH_UP):
            if not self._read_once():
                is_level = self._ring.room > 0
                break
        if not self._ring.room:
            self._watch()
        self._push()
        return is_level

    def _read_once(self) -> bool:
        """Whether there may be more."""
        room = self._ring.room
        if not room:
            return False
        try:
            data = os.read(self._master, min(_READ_SIZE, room))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # nobody has the other side open
        if not data:
            self._loop.forget(self._master)
            if self._status is not None:
                self._finish()
            else:
                # The program has closed it, for a moment or for good, and lives: a hung-up PTY is ready all the time.
                self._timer = self._timer or self._loop.after(_LOOK_AGAIN_S, self._look_again)
            return False
        self._ring.append(data)
        self.output_at = self._loop.now()
        return True

    def _look_again(self) -> None:
        self._timer = None
        self._watch()

    def _push(self) -> None:
        for attachment in self._attachments:
            attachment.push()
        self._attachments = [
            known for known in self._attachments if not (known.stream.is_gone or known.stream.has_ended)
        ]

    def reaped(self, status: int) -> None:
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drain()

    def _drain(self) -> None:
        """Its last words; a recorder that has not come for those before keeps them waiting."""
        while self.is_open and self._read_once():
            pass
        if self.exit is None:
            self._watch()
            if self._ring.room:
                self._timer = self._loop.after(_DRAIN_S, self._drained)
        self._push()

    def _drained(self) -> None:
        self._timer = None
        if self._ring.room:
            self._finish()

    def _finish(self) -> None:
        if self.exit is not None or self._status is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        code = os.waitstatus_to_exitcode(self._status)
        self.exit = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        self._input.close()
        self.is_open = False
        self.foreground.close()
        self._loop.forget(self._master)
        os.close(self._master)
        self._push()
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter({"exit": self.exit, "end": self._ring.end})


class Terminals:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._terminals: dict[str, Terminal] = {}
        self._by_pid: dict[int, Terminal] = {}

    def all(self) -> list[Terminal]:
        return list(self._terminals.values())

    def find(self, identity: str) -> Terminal | None:
        return self._terminals.get(identity)

    def get(self, identity: str) -> Terminal:
        terminal = self._terminals.get(identity)
        if terminal is None:
            raise RefusalError("not_found", "terminal_unknown", f"The guest does not hold the terminal {identity!r}.")
        return terminal

    def open(self, identity: str, program: Program, size: Size) -> Terminal:
        if len(self._terminals) >= TERMINAL_LIMIT:
            raise RefusalError("exhausted", "too_many_terminals", f"{TERMINAL_LIMIT} terminals are open.")
        terminal = Terminal(identity, program, size, self._loop)
        self._terminals[identity] = self._by_pid[terminal.pid] = terminal
        return terminal

    def close(self, identity: str) -> None:
        """End its program and forget it. A terminal that is not there is closed."""
        terminal = self._terminals.pop(identity, None)
        if terminal is not None:
            terminal.hang_up()

    def reaped(self, pid: int, status: int) -> bool:
        terminal = self._by_pid.pop(pid, None)
        if terminal is not None:
            terminal.reaped(status)
        return terminal is not None
