"""How fast output gets to one observer and to many, beside a bare reader of the same PTY in the same machine."""

import selectors
import time
from collections.abc import Awaitable, Callable

import anyio.to_thread

from bench.machines_stack import Stack, open_stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.terminals_parts import OUTPUT, READY, STATUS, Attached, open_terminal
from bench.workshop import Workshop

NAME = "terminals-throughput"
TITLE = "Terminals: output"
UNIT = "MB/s"
ONE = "to one observer"
BARE = "bare reader in the machine"
WHAT = (
    "{scale.output_mb} MB of text printed to a raw PTY as fast as it goes, to one observer over a WebSocket; and "
    "{scale.crowd_output_mb} MB to {scale.crowd} observers at once, as the output that passes in a second and as what "
    "all of them get together. All of it is journaled, drawn on the screen model and on its way to the object store "
    "meanwhile. An observer that falls 4 MiB behind is let go; it attaches again where it stands. Beside it, in the "
    "same machine, the same program on a PTY and a loop of `os.read` that throws everything away."
)
_LINE = "The quick brown fox jumps over the lazy dog, and 0123456789 more of them follow it."
_PRINT = f"yes '{_LINE}' | head -c "
_READ = """
import os, pty, sys, time
pid, master = pty.fork()
if not pid:
    os.execvp("sh", ["sh", "-c", sys.argv[1]])
wanted, seen, started_at = int(sys.argv[2]), 0, 0.0
while seen < wanted:
    data = os.read(master, 65536)
    started_at = started_at or time.perf_counter()
    seen += len(data)
print(seen / (time.perf_counter() - started_at) / 1e6)
"""


class _Observer:
    """Counts output, and attaches again when it was let go."""

    def __init__(self, stack: Stack, terminal: str) -> None:
        self._stack = stack
        self._terminal = terminal
        self.seen = 0
        self.came_back = 0
        self.client = Attached(stack, terminal, mode="observe", offset=0)

    def read(self) -> None:
        try:
            self.client.socket.read()
            while (message := self.client.socket.next()) is not None:
                if message[0] == OUTPUT:
                    self.seen += len(message) - 1
                elif message[0] == STATUS and b'"gap"' in message:
                    raise RuntimeError("output was lost")
        except EOFError:
            self.client.close()
            self.came_back += 1
            self.client = Attached(self._stack, self._terminal, mode="observe", offset=self.seen)


def _watch(stack: Stack, machine: str, megabytes: int, count: int) -> tuple[float, int]:
    """Seconds from the first byte until all have all of it, and how often one had to come back."""
    wanted = megabytes * 1_000_000
    command = f"stty raw -echo; printf {READY.decode()}; read go; {_PRINT}{wanted}; sleep 60"
    terminal = open_terminal(stack, machine, ("bash", "-c", command))
    typist = Attached(stack, terminal, mode="type", offset=0)
    typist.wait_for(READY)
    observers = [_Observer(stack, terminal) for _ in range(count)]
    try:
        typist.type(b"\n")
        taken = _read_all(observers, wanted + len(READY))
    finally:
        for client in (typist, *(observer.client for observer in observers)):
            client.close()
        stack.line.call("DELETE", f"/v1/terminals/{terminal}")
    return taken, sum(observer.came_back for observer in observers)


def _read_all(observers: list[_Observer], wanted: int) -> float:
    started_at = 0.0
    while waiting := [observer for observer in observers if observer.seen < wanted]:
        with selectors.DefaultSelector() as ready:
            known = {observer: observer.came_back for observer in waiting}
            for observer in waiting:
                ready.register(observer.client.socket, selectors.EVENT_READ, observer)
            while all(each.came_back == known[each] and each.seen < wanted for each in waiting):
                for key, _ in ready.select(60.0):
                    key.data.read()
                if not started_at and any(observer.seen > len(READY) for observer in waiting):
                    started_at = time.perf_counter()
    return time.perf_counter() - started_at


def _off_the_loop(call: Callable[[], float]) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        return await anyio.to_thread.run_sync(call)

    return run


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    came_back = 0

    def to_one() -> float:
        return scale.output_mb / _watch(stack, machine, scale.output_mb, 1)[0]

    def to_many() -> float:
        nonlocal came_back
        taken, again = _watch(stack, machine, scale.crowd_output_mb, scale.crowd)
        came_back += again
        return scale.crowd_output_mb / taken

    def bare() -> float:
        size = scale.output_mb * 1_000_000
        command = f"stty raw -echo; {_PRINT}{size}; sleep 1"
        done = stack.line.exec(machine, argv=["python3", "-c", _READ, command, str(size)], timeout_s=300)
        assert done["exit_code"] == 0, done
        return float(done["stdout"])

    many = f"to {scale.crowd} observers, output"
    say("starting a stack")
    with open_stack(workshop) as stack:
        machine = stack.line.create("default")
        rounds = max(1, scale.terminal_rounds // 3)  # seconds each
        contenders = [
            Contender(ONE, UNIT, _off_the_loop(to_one)),
            Contender(BARE, UNIT, _off_the_loop(bare)),
            Contender(many, UNIT, _off_the_loop(to_many)),
        ]
        section.readings = await take_turns(contenders, rounds, say)
    total = [each * scale.crowd for each in section.reading(many).rounds]
    section.add(f"to {scale.crowd} observers, all together", UNIT, total)
    section.compare(ONE, BARE, "at least", 0.5)
    section.compare(many, ONE)
    if came_back:
        section.notes.append(f"Observers that fell behind and came back, over all rounds: {came_back}.")
    return section
