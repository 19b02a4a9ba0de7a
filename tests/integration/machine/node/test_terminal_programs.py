"""Programs that nobody here wrote, in terminals of a real machine: whoever was there all the time and whoever attaches
later sees what the node's own screen model shows, at every size, and that is what the program meant to show."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, SHELL, Watcher, act, open_terminal, operator
from machine_rooms import MachineRoom, open_machine_room
from outlive.base import TerminalId
from outlive.machine.node.node import Node
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.status import Machine
from outlive.machine.terminal.door import Close
from outlive.machine.terminal.frames import Channel
from outlive.machine.terminal.screen import Screen
from outlive.machine.terminal.status import Size
from outlive.testing.screens import Seen, seen
from outlive.wiring.screens import open_screens

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("terminal_programs")]

SMALL, LARGE = Size(80, 24), Size(200, 60)
WITHIN_S = 60.0
SCREENS = open_screens()
BEN = operator("ben")

# Every cell of the screen has a letter, the one in the last corner too; its size stands in the middle.
FULL_SCREEN = """
import curses

def draw(window):
    rows, cols = window.getmaxyx()
    for row in range(rows):
        letters = chr(97 + row % 26) * cols
        window.addstr(row, 0, letters[:-1], curses.color_pair(1 + row % 6))
        window.insstr(row, cols - 1, letters[-1:], curses.color_pair(1 + row % 6) | curses.A_BOLD)
    window.addstr(rows // 2, 10, f"<{cols}x{rows}>", curses.A_REVERSE)
    window.move(rows - 1, cols - 1)

def main(window):
    for colour in range(1, 7):
        curses.init_pair(colour, colour, 0)
    draw(window)
    while (key := window.getch()) != ord("q"):
        if key == curses.KEY_RESIZE:
            draw(window)

curses.wrapper(main)
"""
# With each key it prints one more byte.
BYTE_BY_BYTE = """
import os, sys, tty

tty.setraw(0)
os.write(1, b">")
for byte in bytes.fromhex(sys.argv[1]):
    os.read(0, 1)
    os.write(1, bytes([byte]))
os.read(0, 1)
"""
# The last but one wide character of the first line does not fit into 80 columns.
CHARACTERS = "日本語 e\u0301o\u0308 \U0001f642" + "-" * 66 + "漢字\r\nq\u0323\u0307 한글"


def vim() -> str:
    """Debian calls the smallest one by another name."""
    found = next((name for name in ("vim", "vim.tiny") if shutil.which(name)), None)
    assert found is not None, "set-up for tests installs vim.tiny"
    return f"{found} -u NONE -N -n -i NONE"


class Viewer(Watcher):
    """One who draws what comes, in a window that is as large as is said."""

    screen: Screen

    def __init__(self, offset: int | None = 0) -> None:
        super().__init__(offset)
        self.is_drawn = False  # all of the screen that it was shown at first has come
        self.pieces: list[bytes] = []  # of the output, as they came

    def taken(self, payload: bytes) -> None:
        self.pieces.append(payload)

    def _take(self, channel: Channel, payload: bytes) -> None:
        super()._take(channel, payload)
        if channel is Channel.OUTPUT:
            self.screen.feed(payload)
        elif channel is Channel.STATUS:
            words = self.words[-1]
            if "terminal" in words:
                self.screen = SCREENS.new(words["cols"], words["rows"])
            if "offset" in words:
                self.is_drawn = not words.get("screen")
            if "size" in words:
                self.screen.resize(words["size"]["cols"], words["size"]["rows"])


@dataclass
class Stage:
    """A terminal, whoever types in it, and those who watch: each new one attaches without an offset, and stays."""

    node: Node
    machine: Machine
    terminal: TerminalId
    host: TerminalHost
    first: Viewer  # attached before anything was typed; it types
    stack: AsyncExitStack
    viewers: list[Viewer] = field(default_factory=list)

    @property
    def screen(self) -> Screen:
        """The node's own model."""
        return self.host.recorder.screen

    async def until(self, condition: Callable[[str], bool]) -> None:
        """The node sees so."""
        await eventually(lambda: condition(self.screen.text()), WITHIN_S)

    async def until_printed(self, text: bytes, times: int) -> None:
        await eventually(lambda: self.first.seen.count(text) >= times, WITHIN_S)

    async def until_offset(self, offset: int) -> None:
        await eventually(lambda: self.first.offset == offset, WITHIN_S)

    async def resize(self, size: Size) -> None:
        await self.first.resize(*size)
        await eventually(lambda: (self.screen.cols, self.screen.rows) == size, WITHIN_S)

    async def new_viewer(self) -> None:
        late = Viewer(None)
        await self.stack.enter_async_context(late.at(self.node, self.machine, self.terminal, BEN))
        self.viewers.append(late)

    async def same_for_all(self) -> Seen:
        """All who watch, and one who comes now, see what the node sees."""
        await self.new_viewer()
        await eventually(self._are_level, WITHIN_S)
        shown, drawn = seen(self.screen), self.screen.draw(has_history=False)
        for viewer in self.viewers:
            assert seen(viewer.screen) == shown
            assert viewer.screen.draw(has_history=False) == drawn, "colours and modes"
            assert viewer.said("gap") == []
        return shown

    def _are_level(self) -> bool:
        size, offset = (self.screen.cols, self.screen.rows), self.host.recorder.offset
        return all(
            each.is_drawn and each.offset == offset and (each.screen.cols, each.screen.rows) == size
            for each in self.viewers
        )


@dataclass
class House:
    room: MachineRoom
    node: Node
    machine: Machine

    @asynccontextmanager
    async def stage(self, argv: tuple[str, ...] = SHELL) -> AsyncIterator[Stage]:
        machine = self.machine
        terminal = await open_terminal(self.node, machine, argv=argv)
        host = await self.node.terminals.find(self.node.residents.get(machine.id, machine.generation), terminal)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Viewer().at(self.node, machine, terminal, ANN, "type"))
            assert isinstance(first, Viewer)
            yield Stage(self.node, machine, terminal, host, first, stack, [first])
            if host.terminal.is_open:
                await act(self.node, machine, terminal, ANN, Close())


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_machine_room(tmp_path_factory.mktemp("programs")) as room, room.node() as node:
        yield House(room, node, await room.create())


async def test_vim_looks_the_same_to_all_at_every_size_and_leaves_the_screen_as_it_was(house: House) -> None:
    line = "a long line" * 10  # two rows of the small screen
    async with house.stage() as stage:
        await stage.first.send(f"echo be''fore; {vim()} poem\n".encode())
        await stage.until(_has_empty(22))
        assert (await stage.same_for_all()).is_alternate
        await stage.first.send(b"i" + line.encode() + b"\x1b")
        for size, empty in ((SMALL, 21), (LARGE, 58), (SMALL, 21)):
            await stage.resize(size)
            await stage.until(_has_empty(empty))
            shown = await stage.same_for_all()
            assert shown.text.replace("\n", "").startswith(line)
            assert shown.is_alternate
        await stage.first.send(b":wq\r")
        await eventually(lambda: not stage.screen.is_alternate, WITHIN_S)
        await stage.first.send(b"echo af''ter\n")
        await stage.until(lambda text: "\nafter\n$" in text)
        shown = await stage.same_for_all()
        assert "\nbefore\n" in shown.text
        assert "~" not in shown.text
        assert not shown.is_alternate
    written = await house.room.exec(house.machine.id, "cat poem")
    assert written.stdout == line + "\n", written


def _has_empty(rows: int) -> Callable[[str], bool]:
    return lambda text: text.count("\n~") == rows


async def test_top_looks_the_same_to_all_at_every_size_while_it_goes_on(house: House) -> None:
    name = "x" * 110
    async with house.stage() as stage:
        await stage.first.send(f"(exec -a {name} sleep 1000) & top -c -d 0.2\n".encode())
        for size in (SMALL, LARGE, SMALL):
            await stage.resize(size)
            await stage.until(_shows_top(f" {name} 1000" if size == LARGE else "x+"))
            await stage.same_for_all()
            await stage.until_printed(b"top - ", stage.first.seen.count(b"top - ") + 2)
            await stage.same_for_all()
        await stage.first.send(b"q")
        await stage.until(lambda text: text.rstrip().endswith("$"))  # what top still reads, the shell never gets
        await stage.first.send(b"kill $!; echo le''ft\n")
        await stage.until(lambda text: "\nleft\n" in text)
        await stage.same_for_all()


def _shows_top(name: str) -> Callable[[str], bool]:
    """With a process whose command ends so; top cuts what does not fit and says so with a plus."""
    return lambda text: "\nTasks:" in text and any(row.endswith(name) for row in text.split("\n"))


async def test_a_full_screen_program_fills_every_size_from_corner_to_corner_for_all(house: House) -> None:
    async with house.stage(("python3", "-c", FULL_SCREEN)) as stage:
        for size in (SMALL, LARGE, SMALL):
            await stage.resize(size)
            await stage.until(_filled(size).__eq__)
            shown = await stage.same_for_all()
            assert shown.is_alternate
            assert shown.cursor == (size.rows - 1, size.cols - 1)
        await stage.first.send(b"q")
        await eventually(lambda: all(each.final is not None for each in stage.viewers), WITHIN_S)
        for viewer in stage.viewers:
            assert (viewer.final or {})["status"] == "Success"
            assert not viewer.screen.is_alternate
            assert viewer.screen.text() == ""


def _filled(size: Size) -> str:
    rows = [chr(97 + row % 26) * size.cols for row in range(size.rows)]
    told = f"<{size.cols}x{size.rows}>"
    middle = rows[size.rows // 2]
    rows[size.rows // 2] = middle[:10] + told + middle[10 + len(told) :]
    return "\n".join(rows)


async def test_characters_that_are_cut_between_frames_are_whole_for_all(house: House) -> None:
    data = CHARACTERS.encode()
    sizes = {4: LARGE, 10: SMALL, len(data) - 2: LARGE, len(data) - 1: SMALL}  # also in the middle of a character
    async with house.stage(("python3", "-c", BYTE_BY_BYTE, data.hex())) as stage:
        await stage.first.until_seen(b">", WITHIN_S)
        for count in range(1, len(data) + 1):
            await stage.first.send(b"k")
            await stage.until_offset(1 + count)
            if count in sizes:
                await stage.resize(sizes[count])
            if count % 12 == 1 or count in sizes:
                await stage.same_for_all()
        shown = await stage.same_for_all()
    assert stage.first.pieces == [bytes([byte]) for byte in b">" + data]
    assert shown.text == ">" + CHARACTERS.replace("漢", "\n漢").replace("\r", "")
