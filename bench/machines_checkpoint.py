"""Checkpoints of a machine with a lot of memory: the first, and a second after little has changed."""

import time

import anyio.to_thread

from bench.machines_stack import Line, Stack, open_stack
from bench.measure import Say, Section
from bench.scale import Scale
from bench.workshop import Workshop

NAME = "machines-checkpoint"
TITLE = "Machines: checkpoints"
WHAT = (
    "A process in the machine fills {scale.checkpoint_mib} MiB with random bytes; `POST /checkpoint`. Then it writes "
    "to 1 % of its pages of 4 KiB, scattered, and the second is made. Bytes are what the object store grew by on the "
    "disk. The time is until it answers: memory saved, cut up, compressed, stored and read back. Each round is a "
    "new machine; no two share a byte of that memory. To hibernate and to wake with so much memory is shown too."
)
_HOLDER = """
import os, random, sys
pages = int(sys.argv[1]) * 256
memory = bytearray(pages * 4096)
for at in range(0, len(memory), 1 << 20):
    memory[at : at + (1 << 20)] = os.urandom(1 << 20)
os.mkfifo("/tmp/ask"); os.mkfifo("/tmp/answer")
while True:
    with open("/tmp/ask") as ask:
        ask.read()
    for page in random.sample(range(pages), pages // 100):
        memory[page * 4096 : page * 4096 + 8] = os.urandom(8)
    with open("/tmp/answer", "w") as answer:
        answer.write("touched")
"""
_WAIT = "until [ -p /tmp/answer ]; do sleep 0.02; done"
_TOUCH = "echo > /tmp/ask; cat /tmp/answer"


class _Taken:
    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def _stored_mib(stack: Stack) -> float:
    """All that is in the object store, as it lies on the disk."""
    path = stack.settings.objects_path
    assert path is not None
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20


def _timed(line: Line, machine: str, verb: str) -> float:
    started_at = time.perf_counter()
    line.do(machine, verb)
    return time.perf_counter() - started_at


def _round(stack: Stack, mib: int, taken: _Taken) -> None:
    line = stack.line
    machine = line.create("default")
    line.exec(machine, argv=["python3", "-c", _HOLDER, str(mib)], background=True, timeout_s=3600)
    line.exec(machine, command=_WAIT)
    for name in ("first", "second"):
        before = _stored_mib(stack)
        taken.add(f"{name}, time", _timed(line, machine, "checkpoint"))
        taken.add(f"{name}, stored", _stored_mib(stack) - before)
        assert line.exec(machine, command=_TOUCH)["stdout"] == "touched"
    taken.add("hibernate, time", _timed(line, machine, "hibernate"))
    taken.add("wake, time", _timed(line, machine, "wake"))
    assert line.exec(machine, command=_TOUCH)["stdout"] == "touched", "with its memory"
    line.delete(machine)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    taken = _Taken()
    say("starting a stack")
    with open_stack(workshop) as stack:
        for number in range(1, scale.checkpoint_rounds + 1):
            say(f"round {number} of {scale.checkpoint_rounds}")
            await anyio.to_thread.run_sync(_round, stack, scale.checkpoint_mib, taken)
    for name in ("first, stored", "second, stored"):
        section.add(name, "MiB", taken.values[name])
    for name in ("first, time", "second, time", "hibernate, time", "wake, time"):
        section.add(name, "s", taken.values[name])
    section.compare("second, stored", "first, stored", "at most", 0.05)
    section.compare("second, time", "first, time")
    return section
