"""What machines cost in which nobody does anything: running, frozen, hibernated. By the kernel's own counters."""

import time
from pathlib import Path

import anyio
import anyio.to_thread

from bench.machines_stack import Stack, open_stack
from bench.measure import Ratio, Say, Section
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.machine.backends.gvisor.cgroups import find_cgroups, parse_mounts
from outlive.machine.backends.gvisor.runsc import container_id
from outlive.processes.record import read_record
from outlive.wiring.node import cgroup_name

NAME = "machines-idle"
TITLE = "Machines: idle"
WHAT = (
    "{scale.idle_machines} machines of the default environment with nothing running but the guest, over "
    "{scale.idle_s:g} s: processor time and memory of the cgroup of each, from the kernel, and the processes that are "
    "there. Frozen: paused, which is the same freezer that an idle machine gets by itself after 30 s. Hibernated: what "
    "is left is looked for, and it is in the object store alone. The node is the process that looks after them."
)
_CPU, _MEMORY = "% of a core, each", "MiB, each"


class _Meter:
    """The cgroups of some machines, and the process of their node."""

    def __init__(self, stack: Stack, machines: list[dict[str, object]]) -> None:
        self._path = stack.settings.node_path
        self._cgroups = find_cgroups(parse_mounts(Path("/proc/mounts").read_text()))
        top = f"/{cgroup_name(self._path)}"
        self._paths = [f"{top}/{container_id(str(each['id']), int(str(each['generation'])))}" for each in machines]
        record = read_record(stack.settings.run_path)
        assert record is not None
        [self._node] = [child.pid for child in record.children if child.name == "node"]

    def cpu_s(self) -> float:
        return sum(self._cgroups.usage(path).cpu_s for path in self._paths)

    def memory_mib(self) -> float:
        return sum(self._cgroups.usage(path).memory_bytes for path in self._paths) / 2**20

    def processes(self) -> int:
        return sum(len(self._cgroups.processes(path)) for path in self._paths)

    def node_cpu_s(self) -> float:
        fields = Path(f"/proc/{self._node}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


async def _measure(section: Section, meter: _Meter, name: str, count: int, idle_s: float) -> None:
    await anyio.sleep(min(2.0, idle_s))  # what the verb left to do is done
    before, node_before, started_at = meter.cpu_s(), meter.node_cpu_s(), time.perf_counter()
    await anyio.sleep(idle_s)
    used, node_used, passed = meter.cpu_s() - before, meter.node_cpu_s() - node_before, time.perf_counter() - started_at
    section.add(f"{name}, processor", _CPU, [used / passed / count * 100])
    section.add(f"{name}, memory", _MEMORY, [meter.memory_mib() / count])
    section.add(f"{name}, processes", "each", [meter.processes() / count])
    section.add(f"node while {name}, processor", "% of a core", [node_used / passed * 100])


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    count = scale.idle_machines

    def all_do(stack: Stack, machines: list[str], verb: str) -> None:
        for machine in machines:
            stack.line.do(machine, verb)

    say("starting a stack and machines")
    with open_stack(workshop) as stack:
        made = [stack.line.create("default") for _ in range(count)]
        meter = _Meter(stack, [stack.line.call("GET", f"/v1/machines/{machine}") for machine in made])
        for name, verb in (("running", None), ("frozen", "pause"), ("hibernated", "hibernate")):
            if verb == "hibernate":
                await anyio.to_thread.run_sync(all_do, stack, made, "resume")
            if verb is not None:
                await anyio.to_thread.run_sync(all_do, stack, made, verb)
            say(f"{count} machines, {name}")
            await _measure(section, meter, name, count, scale.idle_s)
    for name, unit in (("frozen, processor", "processor"), ("hibernated, memory", "memory")):
        ratio = section.reading(name).value / section.reading(f"running, {unit}").value
        section.ratios.append(Ratio(f"{name} / running, {unit}", (ratio,), "at most", 0.0))
    section.readings.sort(key=lambda reading: reading.unit)
    return section
