"""From asking for a machine to the first output of a command in it: claimed from a warm pool, beside a cold start."""

import time

import anyio.to_thread

from bench.machines_stack import Stack, open_stack
from bench.machines_start import BASE, UNIT
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop

NAME = "machines-claim"
TITLE = "Machines: warm claim"
WHAT = (
    "`POST /v1/machines`, and when it has answered `exec` of `echo` until its output is there. Claimed: of an "
    "environment that keeps machines ready. Cold: of the same definition without a pool. The pool is full and at rest "
    "before each round begins; it is filled again, at its own pace, while the command runs."
)
POOL = 2


def _first_output(stack: Stack, environment: str) -> tuple[str, float]:
    started_at = time.perf_counter()
    machine = stack.line.create(environment)
    done = stack.line.exec(machine, command="echo here")
    taken = time.perf_counter() - started_at
    assert done["stdout"] == "here\n", done
    return machine, taken * 1000


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a stack and filling a pool")
    with open_stack(workshop) as stack:
        # Other variables: the same definition under two names would be one pool.
        for name, warm in (("warm", POOL), ("cold", 0)):
            stack.define({"name": name, "base": BASE, "warm": warm, "env": {"POOL": name}})

        def take(environment: str) -> float:
            stack.wait_for_pool(POOL)
            machine, taken = _first_output(stack, environment)
            stack.line.delete(machine)
            return taken

        async def claim() -> float:
            return await anyio.to_thread.run_sync(take, "warm")

        async def cold() -> float:
            return await anyio.to_thread.run_sync(take, "cold")

        contenders = [
            Contender("claimed, to first output", UNIT, claim),
            Contender("cold start, to first output", UNIT, cold),
        ]
        section.readings = await take_turns(contenders, scale.machine_rounds, say)
    section.compare("claimed, to first output", "cold start, to first output", "at most", 0.2)
    return section
