"""Cold start of a machine through the whole stack, beside bare `runsc run`; one, and many at once."""

import time
from statistics import median

import anyio.to_thread

from bench.machines_bare import BareSandboxes
from bench.machines_stack import Stack, open_stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop

NAME = "machines-start"
TITLE = "Machines: cold start"
WHAT = (
    "`POST /v1/machines` of the default environment, through the API, Temporal, worker and node of a running stack, "
    "until it answers: the machine is running and its record says so. Beside it `runsc run`, from its start to the "
    "HELLO of the guest, in a sandbox of the same kind: same flags, base, guest, disk under an overlay, limits and "
    "weight, with all of that made before the clock starts. And {scale.machines_parallel} of both at once."
)
UNIT = "ms"
BASE = "debian"


def _contenders(stack: Stack, bare: BareSandboxes) -> list[Contender]:
    async def cold() -> float:
        def create() -> tuple[str, float]:
            started_at = time.perf_counter()
            machine = stack.line.create("default")
            return machine, time.perf_counter() - started_at

        machine, taken = await anyio.to_thread.run_sync(create)
        await anyio.to_thread.run_sync(stack.line.delete, machine)
        return taken * 1000

    async def runsc() -> float:
        sandbox = await bare.make()
        taken = await anyio.to_thread.run_sync(bare.start, sandbox)
        await bare.destroy(sandbox)
        return taken * 1000

    return [Contender("cold start", UNIT, cold), Contender("bare runsc run", UNIT, runsc)]


def _crowds(stack: Stack, bare: BareSandboxes, count: int) -> list[Contender]:
    async def many() -> float:
        _, taken = await anyio.to_thread.run_sync(stack.create_many, "default", count)
        await anyio.to_thread.run_sync(stack.delete_all)
        return taken * 1000

    async def bare_many() -> float:
        sandboxes = [await bare.make() for _ in range(count)]
        taken = await anyio.to_thread.run_sync(bare.start_many, sandboxes)
        for sandbox in sandboxes:
            await bare.destroy(sandbox)
        return taken * 1000

    return [
        Contender(f"{count} cold starts at once", UNIT, many),
        Contender(f"bare runsc run, {count} at once", UNIT, bare_many),
    ]


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_stack(workshop) as stack:
        bare = BareSandboxes(stack, BASE)
        section.readings = await take_turns(_contenders(stack, bare), scale.machine_rounds, say)
        crowds = _crowds(stack, bare, scale.machines_parallel)
        section.readings += await take_turns(crowds, scale.machine_crowd_rounds, say)
    section.compare("cold start", "bare runsc run", "at most", 1.6)
    section.compare(crowds[0].name, crowds[1].name)
    spare = median(a - b for a, b in zip(*(reading.rounds for reading in section.readings[:2]), strict=True))
    section.notes.append(f"What the stack adds to a cold start is {spare:.0f} ms in the median.")
    return section
