"""What the host types into a program: a stream in, a descriptor out. Used for stdin and for terminals.

Invariant: every byte taken from a stream is written once and in order, and `taken` counts them from birth: a host that
lost its connection asks how far it got and goes on from there. What is given up (`drop`) counts as taken and is never
written.
"""

import os

from outlive.guest.loop import Callback, Loop
from outlive.guest.stream import Stream


class Input:
    """Does not own the descriptor of a terminal; owns that of a pipe (`is_pipe`), and closes it at the end."""

    def __init__(self, loop: Loop, descriptor: int, *, is_pipe: bool) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._is_pipe = is_pipe
        self._pending = bytearray()
        self._is_last = False
        self._stream: Stream | None = None
        self.is_open = True
        self.taken = 0
        self.on_wait: Callback | None = None  # how to wait for the descriptor, if somebody else watches it too
        os.set_blocking(descriptor, False)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def unwritten(self) -> int:
        return len(self._pending)

    def attach(self, stream: Stream) -> int:
        """Take what comes from `stream`, which begins at the offset that is answered. A stream before it is left."""
        if self._stream is not None:
            self._stream.reset()
        self._stream = stream
        stream.on_data = self._take
        stream.on_end = self._take_end
        stream.on_gone = self._detach
        if not self.is_open:
            self._loop.soon(self._leave)
        return self.taken

    def _detach(self) -> None:
        self._stream = None

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.reset()
            self._stream = None

    def _take(self, data: bytes) -> None:
        self.taken += len(data)
        self._pending += data
        self.flush()

    def drop(self, upto: int) -> int:
        """Give up what was not yet written, and what is still to come before `upto`. From which offset on that is."""
        written = self.taken - len(self._pending)
        dropped = len(self._pending)
        self._pending.clear()
        self.taken = max(self.taken, upto)
        if self._stream is not None and dropped:
            self._stream.consume(dropped)
        if self.is_open:
            self.flush()
        return written

    def _take_end(self) -> None:
        if self._is_pipe:
            self._is_last = True
            self.flush()

    def flush(self) -> None:
        """Write what the program takes; the rest when it takes more."""
        while self._pending and self.is_open:
            try:
                written = os.write(self._descriptor, self._pending)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            del self._pending[:written]
            if self._stream is not None:
                self._stream.consume(written)
        if self._is_last and not self._pending:
            self.close()
        elif self.on_wait is not None:
            self.on_wait()
        elif self.is_open:
            self._loop.watch(self._descriptor, write=self.flush if self._pending else None)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._pending.clear()
            if self._is_pipe:
                self._loop.forget(self._descriptor)
                os.close(self._descriptor)
            self._leave()
