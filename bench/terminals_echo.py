"""From a key to its echo at a client of the WebSocket, beside a bare PTY in the same machine, ttyd and tmux."""

import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from statistics import median

import anyio.to_thread

from bench.machines_stack import open_stack
from bench.measure import Contender, Say, Section, percentile, take_turns
from bench.scale import Scale
from bench.terminals_parts import ECHO, READY, Attached, Echoing, Rivals, attached, open_terminal
from bench.workshop import Workshop

NAME = "terminals-echo"
TITLE = "Terminals: a key's echo"
UNIT = "ms"
OURS = "terminal"
NODE = "bare relay, through the node"
STRAIGHT = "bare relay, straight"
TTYD = "ttyd, through the API"
TMUX = "tmux on the same relay, through the node"
WHAT = (
    "One key typed at a WebSocket of the API until its echo is there: through API, node and guest to `cat` on a raw "
    "PTY, and back; {scale.keys} keys a round, 5 ms apart. On its way the lease is asked, the key is "
    "journaled with who typed it, and the echo is journaled and drawn on the screen model before it is shown. "
    f"`{NODE}`: the smallest program that holds a PTY with the same `cat`, in the same machine, on a port that is "
    "reached through node and guest, without the API: the barest way that the world outside has to a program in a "
    f"machine. `{STRAIGHT}`: the same program with a unix socket of its own out of the sandbox and no process between: "
    "what the sandbox itself costs, and the floor. tmux runs in the same machine, on such a relay; ttyd, if there is "
    "one here, behind its preview."
)


_PAUSE_S = 0.005  # between two keys: ten times as fast as anybody types, and no flood


class _Typist:
    """Types into one of them, and keeps how long the slow ones took."""

    def __init__(self, name: str, rival: Echoing, keys: int) -> None:
        self.name = name
        self.slow: list[float] = []
        self._rival = rival
        self._keys = keys

    def _type(self) -> float:
        taken = []
        for number in range(self._keys):
            key = b"abcdefghij"[number % 10 : number % 10 + 1]
            started_at = time.perf_counter()
            self._rival.echo(key)
            taken.append((time.perf_counter() - started_at) * 1000)
            time.sleep(_PAUSE_S)
        self.slow.append(percentile(taken, 95))
        return median(taken)

    @property
    def contender(self) -> Contender:
        return Contender(f"{self.name}, p50", UNIT, _off_the_loop(self._type))


def _off_the_loop(call: Callable[[], float]) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        return await anyio.to_thread.run_sync(call)

    return run


def _settled(client: Attached) -> Attached:
    client.wait_for(READY)
    client.settle()
    return client


def _typists(opened: ExitStack, stack_of: Rivals, ours: Attached, keys: int, *, has_tmux: bool) -> list[_Typist]:
    found: list[tuple[str, Echoing | None]] = [
        (OURS, ours),
        (NODE, stack_of.through_node(*ECHO)),
        (STRAIGHT, stack_of.straight(*ECHO)),
        (TTYD, stack_of.ttyd(*ECHO)),
        (TMUX, stack_of.through_node("tmux", "-f", "/dev/null", "new-session", *ECHO) if has_tmux else None),
    ]
    return [_Typist(name, rival, keys) for name, rival in found if rival is not None]


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_stack(workshop) as stack, ExitStack() as opened:
        if not scale.is_quick:  # it takes a minute to make a base with tmux
            stack.define({"name": "bench", "base": "debian:tmux"})
        machine = stack.line.create("default" if scale.is_quick else "bench")
        terminal = open_terminal(stack, machine, ECHO)
        ours = _settled(opened.enter_context(attached(stack, terminal, offset=0)))
        rivals = Rivals(stack, machine, opened)
        typists = _typists(opened, rivals, ours, scale.keys, has_tmux=not scale.is_quick)
        section.readings = await take_turns([each.contender for each in typists], scale.terminal_rounds, say)
    for typist in typists:
        section.add(f"{typist.name}, p95", UNIT, typist.slow[1:])
    section.compare(f"{OURS}, p50", f"{NODE}, p50", "at most", 2.0)
    if any(typist.name == TTYD for typist in typists):
        section.compare(f"{OURS}, p50", f"{TTYD}, p50", "at most", 1.0)
        section.compare(f"{OURS}, p95", f"{TTYD}, p95")
    else:
        section.notes.append("ttyd was not measured: there is none on the PATH (one that is linked statically).")
    section.compare(f"{OURS}, p50", f"{STRAIGHT}, p50")
    if any(typist.name == TMUX for typist in typists):
        section.compare(f"{OURS}, p50", f"{TMUX}, p50", "at most", 1.0)
    return section
