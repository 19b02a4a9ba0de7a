"""One pipe of a command: read what the program prints, keep what the host has not acknowledged, pass it on.

Rule 1: what is kept is bounded (by the command's `Budget`): when it is full the pipe is not read, so the program waits.
Rule 2: beyond the command's total the pipe is read and dropped, and what was cut is counted.
Rule 3: once the command is over, what is still printed (by a child that lives on) is read and dropped.
"""

import os
from collections.abc import Callable

from outlive.guest.kept import Kept
from outlive.guest.loop import Loop
from outlive.guest.stream import Stream

KEPT_LIMIT = 4 * 1024 * 1024  # of one command, both pipes
KEPT_IN_ALL = 64 * 1024 * 1024
_READ_SIZE = 64 * 1024
_READS_AT_ONCE = 8
_PIPE_SIZE = 1024 * 1024  # the most that a pipe may hold when its last writer dies


class Purse:
    """What all commands together keep."""

    def __init__(self) -> None:
        self.size = 0


class Budget:
    """What one command may keep at a time, and print in all."""

    def __init__(self, total: int, purse: Purse) -> None:
        self.remaining = total
        self._kept = 0
        self._purse = purse

    @property
    def is_full(self) -> bool:
        return self._kept >= KEPT_LIMIT or self._purse.size >= KEPT_IN_ALL

    def room(self, size: int) -> int:
        """How much of `size` more bytes may be kept at all; the rest is cut."""
        return min(size, self.remaining, max(0, 2 * KEPT_IN_ALL - self._purse.size))

    def grow(self, size: int) -> None:
        self._kept += size
        self._purse.size += size


class Output:
    def __init__(self, loop: Loop, descriptor: int, budget: Budget) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._budget = budget
        self._kept = Kept()
        self.cut = 0
        self.is_open = True  # the pipe is
        self._is_over = False
        self._is_held = False  # the pipe is not read: too much is kept
        self._stream: Stream | None = None
        self._sent = 0
        self.on_closed: Callable[[], object] = lambda: None
        os.set_blocking(descriptor, False)
        loop.watch(descriptor, read=self._read)

    @property
    def size(self) -> int:
        return self._kept.end

    def attach(self, stream: Stream, offset: int) -> int:
        """Send what is kept from `offset` on, and what comes. Says where it begins. A stream before it is reset."""
        if self._stream is not None:
            self._stream.reset()
        self._stream = stream
        self._sent = min(max(offset, self._kept.start), self._kept.end)
        stream.on_room = self._push
        stream.on_gone = self._detach
        self._loop.soon(self._push)  # the answer that says where it begins goes first
        return self._sent

    def _detach(self) -> None:
        self._stream = None

    def _push(self) -> None:
        stream = self._stream
        if stream is None:
            return
        while self._sent < self._kept.end and (room := stream.room()):
            self._sent += stream.send(self._kept.read(self._sent, room))
        if self._is_over and self._sent == self._kept.end:
            self._stream = None
            stream.end()

    def acknowledge(self, offset: int) -> None:
        """The host has what is before `offset` safe."""
        self._budget.grow(-self._kept.let_go(min(offset, self._sent)))
        self.unhold()

    def unhold(self) -> None:
        if self._is_held and not self._budget.is_full:
            self._is_held = False
            self._loop.watch(self._descriptor, read=self._read)

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if not self._is_over and self._budget.remaining and self._budget.is_full:
                self._is_held = True
                self._loop.forget(self._descriptor)
                break
            if not self._read_once():
                break
        self._push()

    def _read_once(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self._descriptor, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        if self._is_over:
            return True
        kept = data[: self._budget.room(len(data))]
        self._kept.append(kept)
        self._budget.grow(len(kept))
        self._budget.remaining -= len(kept)
        self.cut += len(data) - len(kept)
        return True

    def drain(self) -> None:
        """The program has ended: take what the pipe held at that moment, also beyond what is kept otherwise."""
        read = 0
        while self.is_open and read < _PIPE_SIZE and self._read_once():
            read += _READ_SIZE
        self._push()

    def finish(self) -> None:
        """The command is over: nothing is added from here on."""
        self._is_over = True
        if self.is_open and self._is_held:
            self._is_held = False
            self._loop.watch(self._descriptor, read=self._read)
        self._push()

    def let_all_go(self) -> None:
        self._budget.grow(-self._kept.let_go(self._kept.end))
        if self._stream is not None:
            self._stream.reset()
            self._stream = None

    def close(self) -> None:
        if self.is_open:
            self.is_open = self._is_held = False
            self._loop.forget(self._descriptor)
            os.close(self._descriptor)
            self.on_closed()
