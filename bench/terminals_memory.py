"""What an idle terminal costs on the host: the growth of node and API with so many of them open."""

import anyio
import anyio.to_thread

from bench.machines_stack import Stack, open_stack
from bench.measure import Ratio, Say, Section
from bench.scale import Scale
from bench.terminals_parts import open_terminal
from bench.workshop import Workshop, pss_of
from outlive.processes.record import read_record

NAME = "terminals-memory"
TITLE = "Terminals: memory of an idle one"
TARGET_MB = 2.0
UNIT = "MB, each"
WHAT = (
    "{scale.idle_terminals} terminals with a shell at its prompt and nobody attached, in as many machines as hold "
    "them (50 in each): how much more memory (Pss) node and API have than before the first one, per terminal. Each has "
    "a journal, a screen model with its scrollback and a connection of its own to the guest. What the shells "
    "themselves take is in the machines."
)
_EACH = 50  # a guest holds 64
_SETTLE_S = 15.0  # longer than what was printed waits to be stored


def _open(stack: Stack, machine: str, count: int) -> None:
    for _ in range(count):
        open_terminal(stack, machine)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    count, settle_s = scale.idle_terminals, 1.0 if scale.is_quick else _SETTLE_S
    say("starting a stack and machines")
    with open_stack(workshop) as stack:
        record = read_record(stack.settings.run_path)
        assert record is not None
        pids = {child.name: child.pid for child in record.children if child.name in ("node", "api")}
        machines = [stack.line.create("default") for _ in range(-(-count // _EACH))]
        await anyio.to_thread.run_sync(_open, stack, machines[0], 1)  # what comes with the first is not counted
        await anyio.sleep(settle_s)
        before = {name: pss_of(pid) for name, pid in pids.items()}
        for number, machine in enumerate(machines):
            say(f"terminals of machine {number + 1} of {len(machines)}")
            await anyio.to_thread.run_sync(_open, stack, machine, min(_EACH, count - number * _EACH))
        await anyio.sleep(settle_s)
        grown = {name: (pss_of(pid) - before[name]) / count / 1e6 for name, pid in pids.items()}
    for name, value in grown.items():
        section.add(name, UNIT, [value])
    total = section.add("node and API", UNIT, [sum(grown.values())]).value
    section.ratios.append(Ratio(f"node and API / {TARGET_MB:g} MB", (total / TARGET_MB,), "at most", 1.0))
    return section
