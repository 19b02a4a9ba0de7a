"""Cold start of a machine through the whole stack, beside bare `runsc run`; one, and many at once."""

import time

import anyio.to_thread

from bench.machines_bare import BareSandboxes
from bench.machines_stack import Stack, open_stack
from bench.machines_steps import Steps
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.wiring.temporal import connect_temporal

NAME = "machines-start"
TITLE = "Machines: cold start"
WHAT = (
    "`POST /v1/machines` of the default environment, through the API, Temporal, worker and node of a running stack, "
    "until it answers: the machine is running and its record says so. Beside it `runsc run`, from its start to the "
    "HELLO of the guest, in a sandbox of the same kind: same flags, base, guest, disk under an overlay, limits and "
    "weight, with all of that made before the clock starts. And {scale.machines_parallel} of both at once. "
    "The steps are the parts of the cold start, by the stamps of its workflow."
)
UNIT = "ms"
BASE = "debian"


def _contenders(stack: Stack, bare: BareSandboxes, steps: Steps) -> list[Contender]:
    async def cold() -> float:
        def create() -> tuple[str, float]:
            started_at = time.perf_counter()
            machine = stack.line.create("default")
            return machine, time.perf_counter() - started_at

        machine, taken = await anyio.to_thread.run_sync(create)
        await steps.note(machine, taken)
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
        steps = Steps(await connect_temporal(stack.settings))
        section.readings = await take_turns(_contenders(stack, bare, steps), scale.machine_rounds, say)
        crowds = _crowds(stack, bare, scale.machines_parallel)
        section.readings += await take_turns(crowds, scale.machine_crowd_rounds, say)
        steps.add_to(section, UNIT)
    section.compare("cold start", "bare runsc run", "at most", 1.6)
    section.compare(crowds[0].name, crowds[1].name)
    return section
