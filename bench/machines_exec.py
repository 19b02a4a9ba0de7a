"""A command through the API, beside a plain fork and exec of the same program in the same machine; and where the time
goes."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from statistics import median

import anyio.to_thread

from bench.machines_stack import Line, Stack, open_stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import MachineId, NodeId, SystemClock, new_effect_id
from outlive.machine.door import ExecRequest, MachineDoor
from outlive.machine.records import Effects
from outlive.wiring.build import open_stores
from outlive.wiring.machines import open_node_door

NAME = "machines-exec"
TITLE = "Machines: a command"
UNIT = "ms"
PLAIN = "fork, exec and wait in the machine"
WHAT = (
    "`POST /v1/machines/…/exec` of `true`, one after the other over one connection, until the result is there: "
    "intent and result are journaled, durable, before and after. `argv` runs the program as it is, `command` under "
    f"`bash -c`. Beside it, in the same machine, `{PLAIN}`: a loop of `/bin/true` in `sh` (dash), the smallest process "
    "that does it, without its start; and the same from Python's `subprocess`. The steps of the way are each measured "
    "on their own: a request to the API that only reads the machine's record; a question to the node that only reads "
    "the journal; the command asked of the node without the API; one entry in the journal; and from the first entry "
    "to the result, by the journal's own stamps, which is that entry and all that the guest does."
)
# Prints the milliseconds of one /bin/true: of a loop in sh, less an empty sh; and of subprocess.run.
_PROBE = """
import subprocess, sys, time
count = int(sys.argv[1])
def timed(*argv):
    at = time.perf_counter()
    subprocess.run(argv, check=True)
    return time.perf_counter() - at
loop = "i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done"
timed("sh", "-c", loop % 3)
whole, empty = timed("sh", "-c", loop % count), timed("sh", "-c", loop % 0)
print((whole - empty) / count * 1000)
at = time.perf_counter()
for _ in range(count):
    subprocess.run(["/bin/true"], check=True)
print((time.perf_counter() - at) / count * 1000)
"""


async def _median_ms(call: Callable[[], Awaitable[object]], count: int) -> float:
    taken = []
    for _ in range(count):
        started_at = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started_at)
    return median(taken) * 1000


class _Caller:
    """Somebody with a connection to the API."""

    def __init__(self, line: Line, machine: str, count: int) -> None:
        self._line = line
        self._machine = machine
        self._count = count
        self.from_python: list[float] = []

    def _each(self, call: Callable[[], object]) -> float:
        """The median of so many, in milliseconds."""
        taken = []
        for _ in range(self._count):
            started_at = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started_at)
        return median(taken) * 1000

    def argv(self) -> float:
        return self._each(lambda: self._line.exec(self._machine, argv=["/bin/true"]))

    def command(self) -> float:
        return self._each(lambda: self._line.exec(self._machine, command="true"))

    def read(self) -> float:
        return self._each(lambda: self._line.call("GET", f"/v1/machines/{self._machine}"))

    def plain(self) -> float:
        done = self._line.exec(self._machine, argv=["python3", "-c", _PROBE, str(self._count)])
        assert done["exit_code"] == 0, done
        loop, from_python = map(float, done["stdout"].split())
        self.from_python.append(from_python)
        return loop

    def between_stamps(self) -> float:
        taken = []
        for _ in range(self._count):
            done = self._line.exec(self._machine, argv=["/bin/true"])
            begun, ended = (datetime.fromisoformat(done[name]) for name in ("started_at", "ended_at"))
            taken.append((ended - begun).total_seconds())
        return median(taken) * 1000


class _Neighbour:
    """Somebody who goes around the API: to the node, and to the journal."""

    def __init__(self, door: MachineDoor, effects: Effects, shown: dict[str, str], count: int) -> None:
        self._door = door
        self._effects = effects
        self._machine = MachineId(shown["id"])
        self._generation = int(shown["generation"])
        self._node = NodeId(shown["node"])
        self._count = count

    async def exec(self) -> float:
        async def once() -> None:
            request = ExecRequest(effect_id=new_effect_id(), argv=("/bin/true",))
            await self._door.exec(self._machine, self._generation, request)

        return await _median_ms(once, self._count)

    async def ask(self) -> float:
        request = ExecRequest(effect_id=new_effect_id(), argv=("/bin/true",))
        await self._door.exec(self._machine, self._generation, request)
        return await _median_ms(
            lambda: self._door.effect(self._machine, self._generation, request.effect_id), self._count
        )

    async def journal(self) -> float:
        async def once() -> None:
            await self._effects.begin(
                self._machine,
                new_effect_id(),
                node=self._node,
                generation=self._generation,
                digest="0" * 64,
                at=SystemClock().now(),
            )

        return await _median_ms(once, self._count)


@asynccontextmanager
async def _open_neighbour(stack: Stack, machine: str, count: int) -> AsyncIterator[_Neighbour]:
    clock = SystemClock()
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores(stack.settings, clock))
        door = await opened.enter_async_context(open_node_door(stack.settings, stores.machines, stores.nodes, clock))
        yield _Neighbour(door, stores.effects, stack.line.call("GET", f"/v1/machines/{machine}"), count)


def _off_the_loop(call: Callable[[], float]) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        return await anyio.to_thread.run_sync(call)

    return run


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a stack")
    with open_stack(workshop) as stack:
        machine = stack.line.create("default")
        caller = _Caller(stack.line, machine, scale.execs)
        async with _open_neighbour(stack, machine, scale.execs) as neighbour:
            contenders = [
                Contender("exec, argv", UNIT, _off_the_loop(caller.argv)),
                Contender("exec, command", UNIT, _off_the_loop(caller.command)),
                Contender(f"bare {PLAIN}", UNIT, _off_the_loop(caller.plain)),
                Contender("step: API, a read", UNIT, _off_the_loop(caller.read)),
                Contender("step: node, a read", UNIT, neighbour.ask),
                Contender("step: node, the command", UNIT, neighbour.exec),
                Contender("step: an entry in the journal", UNIT, neighbour.journal),
                Contender("step: between the stamps", UNIT, _off_the_loop(caller.between_stamps)),
            ]
            section.readings = await take_turns(contenders, scale.exec_rounds, say)
    section.add("bare subprocess.run in the machine", UNIT, caller.from_python[1:])
    for name in ("exec, argv", "exec, command"):
        section.compare(name, f"bare {PLAIN}", "at most", 4.0)
    section.compare("exec, argv", "bare subprocess.run in the machine")
    return section
