"""The port to screen models: what a terminal shows now, made from all the bytes that it printed.

Rule 1: a model only listens. What a program asks its terminal (cursor, attributes, title, clipboard) is never answered
        from here, and nothing of it is passed on by `draw`.
Rule 2: how the bytes are cut into feeds changes nothing: a sequence or a character that is not complete yet waits.
Rule 3: `draw()` and then the bytes that follow show the same as all the bytes from the beginning. What is not complete
        stands at the end of the drawing, for those bytes to complete.
"""

from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """Of the cursor; both from 0."""

    row: int
    col: int


class Screen(Protocol):
    """One terminal's. Not for two threads at once."""

    @property
    def cols(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def title(self) -> str:
        """As the program set it, without control characters; empty if it did not."""
        ...

    @property
    def cursor(self) -> Place: ...

    @property
    def is_alternate(self) -> bool:
        """A full-screen program has the screen; the usual one is behind it."""
        ...

    @property
    def size_bytes(self) -> int:
        """A hint of how much memory it takes."""
        ...

    def feed(self, data: bytes) -> None:
        """What the terminal printed next. Whatever it is, it raises nothing."""
        ...

    def resize(self, cols: int, rows: int) -> None: ...

    def draw(self, *, has_history: bool = True) -> bytes:
        """What puts a fresh terminal of this size into this state: cells with colours and attributes, cursor, both
        screens, modes, margins, tabs, charsets, title and, if the engine keeps it, the newest lines that scrolled out.
        Links, images, changed palettes and what only reports would tell are left out. Without `has_history` also what
        scrolled out: for a terminal that has it already."""
        ...

    def corner(self, cols: int, rows: int) -> list[bytes]:
        """The upper left of what is seen, for a window of another size: a row each, as text with colours that begins
        in the first column and is `cols` wide. At most as many rows as there are."""
        ...

    def text(self) -> str:
        """What is seen, as plain text: rows without their trailing blanks, empty last rows left out."""
        ...

    def close(self) -> None:
        """Give its memory back now. It must not be used after."""
        ...


class Screens(Protocol):
    @property
    def name(self) -> str:
        """Of the engine."""
        ...

    def new(self, cols: int, rows: int) -> Screen:
        """An empty one."""
        ...
