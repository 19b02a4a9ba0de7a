"""From asking for a terminal to its present screen, beside what the screen model itself needs and one round trip."""

import time
from collections.abc import Awaitable, Callable
from statistics import median

import anyio.to_thread

from bench.machines_stack import Line, Stack, open_stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.terminals_parts import READY, attached, open_terminal
from bench.workshop import Workshop
from outlive.wiring.screens import open_screens

NAME = "terminals-attach"
TITLE = "Terminals: the first screen"
UNIT = "ms"
OURS = "attach to the first screen"
DRAW = "bare drawing of the same screen"
ROUND_TRIP = "bare round trip"
BOTH = "bare drawing and round trip"
WHAT = (
    "A new connection, the handshake of the WebSocket, and all of the present screen with the offset at which it goes "
    "on: 80 x 24 cells in colours with 1,000 lines of scrollback; {scale.attaches} a round, one after the other. "
    f"`{DRAW}`: the screen model in a process of its own, fed with the same bytes, draws it. `{ROUND_TRIP}`: a new "
    "connection, and one request that the API passes on to the node that has the terminal (`GET /v1/terminals/…`). "
    "`attach from an offset` is the same attachment without a screen."
)
_LINES = 1_024
_FILE = "/workspace/screen"


def _content() -> bytes:
    """Lines of words in changing colours, as a build or a test run prints them."""
    words = ("compiling", "passed", "outlive.machine", "warning:", "0.35s", "tests/unit", "ok", "in 4 files")
    lines = []
    for number in range(_LINES):
        cells = [f"\x1b[{31 + (number + place) % 7}m{words[(number + place) % 8]}\x1b[0m" for place in range(7)]
        lines.append(f"\x1b[1m{number:5}\x1b[0m " + " ".join(cells))
    return "\r\n".join(lines).encode()


class _Newcomer:
    def __init__(self, stack: Stack, terminal: str, end: int, content: bytes, count: int) -> None:
        self._stack = stack
        self._terminal = terminal
        self._end = end
        self._count = count
        self._screen = open_screens().new(80, 24)
        self._screen.feed(content)

    def _each(self, call: Callable[[], object]) -> float:
        taken = []
        for _ in range(self._count):
            started_at = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started_at)
        return median(taken) * 1000

    def attach(self) -> float:
        def once() -> None:
            with attached(self._stack, self._terminal, mode="observe") as client:
                client.wait_for_screen()

        return self._each(once)

    def attach_from(self) -> float:
        def once() -> None:
            with attached(self._stack, self._terminal, mode="observe", offset=self._end) as client:
                client.socket.receive()

        return self._each(once)

    def draw(self) -> float:
        return self._each(self._screen.draw)

    def ask(self) -> float:
        def once() -> None:
            line = Line(self._stack.url, self._stack.token)
            line.call("GET", f"/v1/terminals/{self._terminal}")
            line.close()

        return self._each(once)


def _off_the_loop(call: Callable[[], float]) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        return await anyio.to_thread.run_sync(call)

    return run


def _fill(stack: Stack, machine: str, content: bytes) -> tuple[str, int]:
    """A terminal that shows it, and where its output ends."""
    stack.line.put_file(machine, _FILE, content + READY)
    terminal = open_terminal(stack, machine, ("sh", "-c", f"stty raw -echo; cat {_FILE}; exec cat"))
    with attached(stack, terminal, mode="observe", offset=0) as client:
        client.wait_for(READY)
    return terminal, len(content) + len(READY)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_stack(workshop) as stack:
        content = _content()
        terminal, end = _fill(stack, stack.line.create("default"), content)
        newcomer = _Newcomer(stack, terminal, end, content + READY, scale.attaches)
        contenders = [
            Contender(OURS, UNIT, _off_the_loop(newcomer.attach)),
            Contender("attach from an offset", UNIT, _off_the_loop(newcomer.attach_from)),
            Contender(DRAW, UNIT, _off_the_loop(newcomer.draw)),
            Contender(ROUND_TRIP, UNIT, _off_the_loop(newcomer.ask)),
        ]
        section.readings = await take_turns(contenders, scale.terminal_rounds, say)
    pairs = zip(section.reading(DRAW).rounds, section.reading(ROUND_TRIP).rounds, strict=True)
    section.add(BOTH, UNIT, [drawn + asked for drawn, asked in pairs])
    section.compare(OURS, BOTH, "at most", 1.5)
    return section
