"""Waking a hibernated machine through the whole stack, beside bare `runsc restore` of the very same checkpoint."""

import time

import anyio.to_thread

from bench.machines_bare import BareSandboxes
from bench.machines_stack import Stack, open_stack
from bench.machines_start import BASE, UNIT
from bench.machines_steps import Steps
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.base import CheckpointId
from outlive.wiring.temporal import connect_temporal

NAME = "machines-wake"
TITLE = "Machines: wake"
WHAT = (
    "`POST /v1/machines/…/wake` of a hibernated machine in which a server listens and a shell waits, until it "
    "answers: fetched from the object store, restored, its guest heard, its record written. Beside it `runsc restore` "
    "of the very same checkpoint, from its start to the HELLO of the guest: memory and filesystem were fetched and "
    "mounted before the clock starts. The files of both were read or written a moment before, so they are in memory. "
    "`hibernate` is the way there: memory saved, stored, read back, the sandbox gone. "
    "The steps are the parts of the wake, by the stamps of its workflow."
)


class _Sleeper:
    """One machine that hibernates and wakes again and again."""

    def __init__(self, stack: Stack) -> None:
        self._line = stack.line
        self.machine = self._line.create("default")
        self._line.exec(self.machine, command="nohup python3 -m http.server 8000 >/dev/null 2>&1 & mkfifo /tmp/in")
        self._line.exec(
            self.machine, command="nohup bash -c 'kept=1; exec 3<>/tmp/in; read -u 3 line' >/dev/null 2>&1 &"
        )
        self.hibernate_ms = [self._do("hibernate")]

    def _do(self, verb: str) -> float:
        started_at = time.perf_counter()
        self._line.do(self.machine, verb)
        return (time.perf_counter() - started_at) * 1000

    def wake(self) -> float:
        """In milliseconds."""
        return self._do("wake")

    def hibernate(self) -> None:
        kinds = [event["kind"] for event in self._line.call("GET", f"/v1/machines/{self.machine}/events")["items"]]
        assert "rebooted" not in kinds, "it came back with its memory, each time"
        self.hibernate_ms.append(self._do("hibernate"))

    def checkpoint(self) -> CheckpointId:
        newest = self._line.call("GET", f"/v1/machines/{self.machine}/checkpoints")["items"][0]
        assert newest["has_memory"], newest
        return CheckpointId(newest["id"])


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a stack")
    with open_stack(workshop) as stack:
        bare = BareSandboxes(stack, BASE)
        steps = Steps(await connect_temporal(stack.settings))
        sleeper = await anyio.to_thread.run_sync(_Sleeper, stack)

        async def wake() -> float:
            taken = await anyio.to_thread.run_sync(sleeper.wake)
            await steps.note(sleeper.machine, taken / 1000)
            await anyio.to_thread.run_sync(sleeper.hibernate)
            return taken

        async def restore() -> float:
            sandbox = await bare.make(await anyio.to_thread.run_sync(sleeper.checkpoint))
            taken = await anyio.to_thread.run_sync(bare.restore, sandbox)
            await bare.destroy(sandbox)
            return taken * 1000

        contenders = [Contender("wake", UNIT, wake), Contender("bare runsc restore", UNIT, restore)]
        section.readings = await take_turns(contenders, scale.machine_rounds, say)
        section.add("hibernate", UNIT, sleeper.hibernate_ms[2:])  # the first is another one, the second warmed up
        steps.add_to(section, UNIT)
    section.compare("wake", "bare runsc restore", "at most", 2.0)
    return section
