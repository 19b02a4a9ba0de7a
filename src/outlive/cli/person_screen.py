"""What a person at `outlive attach` sees: the terminal's output made harmless, and what there is to say about it.

Whoever holds the lease, and everybody whose window has the remote size, gets the output as it comes. In a window of
another size the remote screen is drawn from a model (`letterbox.py`).
"""

from typing import TYPE_CHECKING

import anyio

from outlive.cli.harmless import Harmless
from outlive.cli.letterbox import Letterbox
from outlive.cli.local_terminal import LocalTerminal
from outlive.cli.status_line import StatusLine, draw_notice, set_title

if TYPE_CHECKING:
    from outlive.machine.terminal.screen import Screen

_CLEAR = b"\x1b[m\x1b[H\x1b[J"  # where CSI 2 J is asked for, some keep what was there as scrolled out
_PAINT_S = 0.03  # between two drawings of a screen of another size


class PersonScreen:
    def __init__(self, local: LocalTerminal, status: StatusLine) -> None:
        self._local = local
        self._status = status
        self._harmless = Harmless(shows_titles=False)
        self._letterbox: Letterbox | None = None
        self._boxed: tuple[int, int] | None = None  # size of the window that the letterbox is for
        self._again: Screen | None = None  # what a screen that is drawn again is read from
        self._has_drawn = False
        self._is_dirty = anyio.Event()
        self._title = ""

    def undo(self) -> bytes:
        """What is to be written when this is over: the cursor is below everything then."""
        self._close_models()
        return self._harmless.reset() + b"\x1b[?25h\x1b[%d;1H\r\n" % self._local.size()[1]

    def is_boxed_for(self, remote: tuple[int, int]) -> bool:
        """Whether what is shown fits how it is shown. If not, the screen has to be drawn anew."""
        wanted = self._wants_letterbox(remote)
        return self._boxed == (self._local.size() if wanted else None)

    def _wants_letterbox(self, remote: tuple[int, int]) -> bool:
        return remote != self._local.size() and (self._status.observes or not self._status.holds_lease)

    async def begin(self, remote: tuple[int, int]) -> None:
        """The output that comes next draws a whole screen of this size, until `drawn`."""
        self._close_models()
        if self._wants_letterbox(remote):
            self._boxed = self._local.size()
            self._letterbox = Letterbox(_new_model(remote), *self._boxed)
        elif self._has_drawn:
            # What scrolled out is in the drawing too, and has scrolled out here: only what is seen is drawn again.
            self._again = _new_model(remote)
        self._status.is_cut = self._letterbox is not None
        self._has_drawn = True
        if self._again is None:
            await self._local.write(self._harmless.reset() + _CLEAR)
        await self.retitle()

    async def drawn(self) -> None:
        """The screen is whole; what comes now happens on it."""
        if self._again is not None:
            drawing, self._again = self._again.draw(has_history=False), None
            await self._local.write(self._harmless.reset() + _CLEAR + self._harmless.feed(drawing))

    def _close_models(self) -> None:
        if self._letterbox is not None:
            self._letterbox.close()
        self._letterbox, self._boxed, self._again = None, None, None

    async def output(self, data: bytes) -> None:
        if self._again is not None:
            self._again.feed(data)
            return
        shown = self._harmless.feed(data)
        if self._letterbox is not None:
            self._letterbox.feed(data)
            self._is_dirty.set()
        elif shown:
            await self._local.write(shown)
        if self._harmless.title != self._status.title and self._harmless.title:
            self._status.title = self._harmless.title
            await self.retitle()

    async def retitle(self) -> None:
        """Say in the title how things are, if that is something new."""
        if (title := self._status.text()) != self._title:
            self._title = title
            await self._local.write(set_title(title))

    async def notice(self, text: str) -> None:
        await self._local.write(draw_notice(text, *self._local.size()))

    async def bell(self) -> None:
        await self._local.write(b"\x07")

    def repaint(self) -> bool:
        """Draw again what a notice has covered; False: only the server can."""
        if self._letterbox is None:
            return False
        self._letterbox.forget()
        self._is_dirty.set()
        return True

    async def paint(self) -> None:
        """Runs all the time, and draws what changed in a letterbox."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty = anyio.Event()
            if self._letterbox is not None:
                await self._local.write(self._letterbox.paint())
            await anyio.sleep(_PAINT_S)


def _new_model(size: tuple[int, int]) -> "Screen":
    from outlive.wiring.screens import open_screens  # dear to import, and needed by few

    return open_screens().new(*size)
