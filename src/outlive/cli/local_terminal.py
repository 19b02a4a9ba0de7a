"""The terminal that a person sits at: raw while `outlive attach` runs, and as it was after it, however that ends."""

import errno
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import anyio

_READ = 64 * 1024
_WRITE = 4096  # a terminal that can take anything takes this much without holding us up
_PUSH_TITLE, _POP_TITLE = b"\x1b[22;0t", b"\x1b[23;0t"


class LocalTerminal:
    """Standard input and output. `is_screen`: a person looks at the output; `is_keyboard`: and types."""

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self.is_keyboard = os.isatty(self._in)
        self.is_screen = os.isatty(self._out)
        self._writing = anyio.Lock()

    @staticmethod
    def window_size(of: int = 1) -> tuple[int, int]:
        """Columns and rows; of one that does not know its own, those that all had once."""
        with suppress(OSError):
            cols, rows = os.get_terminal_size(of)
            if cols and rows:
                return min(cols, 1000), min(rows, 1000)
        return 80, 24

    def size(self) -> tuple[int, int]:
        return self.window_size(self._out)

    async def read(self) -> bytes:
        """What is typed next; empty at the end."""
        with suppress(PermissionError):  # a file: it keeps nobody waiting
            await anyio.wait_readable(self._in)
        try:
            return os.read(self._in, _READ)
        except OSError:  # the terminal is gone
            return b""

    async def write(self, data: bytes) -> None:
        """All of it, and nothing of anybody else in between."""
        async with self._writing:
            left = memoryview(data)
            while left:
                with suppress(PermissionError):
                    await anyio.wait_writable(self._out)
                try:
                    left = left[os.write(self._out, left[:_WRITE]) :]
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    return  # the terminal is gone, and a signal says so

    @contextmanager
    def raw(self, undo: Callable[[], bytes]) -> Iterator[None]:
        """Keys come one by one and nothing is echoed. At the end what `undo` says is written, and all is as before."""
        before = termios.tcgetattr(self._in)
        try:
            tty.setraw(self._in, termios.TCSADRAIN)
            os.write(self._out, _PUSH_TITLE)
            yield
        finally:
            with suppress(OSError):
                os.write(self._out, undo() + _POP_TITLE)
            with suppress(termios.error):
                # What was typed or reported and not read yet is not for the shell.
                termios.tcsetattr(self._in, termios.TCSAFLUSH, before)
