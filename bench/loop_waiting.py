"""What turns cost that wait for a person, and how soon they go on when that person has answered."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from bench.loop_parts import FINISHED, FIRST_DELTA, Talk, open_loop_stack, talking
from bench.machines_stack import Line, Stack
from bench.measure import Contender, Ratio, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop, pss_of
from outlive.processes.record import read_record

NAME = "loop-waiting"
TITLE = "The loop: turns that wait"
WHAT = (
    "{scale.waiting_turns:,} turns that have asked a person something and wait, each in a conversation of its own, on "
    "the embedded stack. Memory: what all its processes together grew by (Temporal's server too). Processor: of all of "
    "them over {scale.waiting_s:g} s in which nothing happens, in per cent of one core, beside the same when few "
    "did. Then, among them, a new one asks, is answered, and goes on: from the answer over HTTP until a follower "
    "has the first piece of the model's next answer; beside it a message in a new conversation, until its first piece."
)
_ASK = '[[tool ask_human {"question": "May I?"}]] [[say Done.]]'
_PARKED = b"event: turn.parked\n"
_PARALLEL = 8
_TARGET_MIB = 200.0
_TARGET_CPU = 1.0  # % of a core, for all of them: what a look at /proc can tell from nothing


class _Meter:
    """All processes of the stack, as the kernel counts them."""

    def __init__(self, stack: Stack) -> None:
        record = read_record(stack.settings.run_path)
        assert record is not None
        self._pids = {"supervisor": record.pid, **{child.name: child.pid for child in record.children}}

    def memory_mib(self) -> dict[str, float]:
        return {name: pss_of(pid) / 2**20 for name, pid in self._pids.items()}

    def cpu_s(self) -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids.values()]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    async def cpu_percent(self, over_s: float) -> float:
        before, started_at = self.cpu_s(), time.perf_counter()
        await anyio.sleep(over_s)
        return (self.cpu_s() - before) / (time.perf_counter() - started_at) * 100


def _park(stack: Stack, line: Line) -> None:
    """One more turn that waits, and nobody who follows it."""
    with talking(stack, line) as talk:
        talk.send(_ASK)
        talk.wait_for(_PARKED)


def _park_many(stack: Stack, count: int) -> None:
    with stack.lines(_PARALLEL) as lines, ThreadPoolExecutor(_PARALLEL) as pool:
        shares = [count // _PARALLEL + (number < count % _PARALLEL) for number in range(_PARALLEL)]

        def park_some(line: Line, share: int) -> None:
            for _ in range(share):
                _park(stack, line)

        list(pool.map(park_some, lines, shares))


def _answer(stack: Stack) -> float:
    """Milliseconds from the answer to the first piece of what the model says next."""
    with talking(stack) as talk:
        talk.send(_ASK)
        talk.wait_for(_PARKED)
        [asked] = [each for each in _pending(stack) if each["conversation"] == talk.id]
        sent_at = time.perf_counter()
        stack.line.call("POST", f"/v1/approvals/{asked['id']}", {"decision": "approve", "comment": "Yes."})
        return _until_end(talk, sent_at)


def _message(stack: Stack) -> float:
    with talking(stack) as talk:
        return _until_end(talk, talk.send("[[say Done.]]"))


def _until_end(talk: Talk, sent_at: float) -> float:
    came_at = talk.wait_for(FIRST_DELTA)
    talk.wait_for(FINISHED)
    talk.end_turn()
    return (came_at - sent_at) * 1000


def _pending(stack: Stack) -> list[dict[str, object]]:
    return list(stack.line.call("GET", "/v1/approvals?state=pending&limit=10")["items"])  # newest first


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with ExitStack() as closing:
        stack = closing.enter_context(open_loop_stack(workshop, has_machines=False))
        meter = _Meter(stack)
        say("a few turns first, so that what is made once is made")
        await anyio.to_thread.run_sync(_park_many, stack, min(50, scale.waiting_turns))
        await anyio.sleep(scale.waiting_s / 2)
        say("few wait")
        few_mib, few_cpu = meter.memory_mib(), await meter.cpu_percent(scale.waiting_s)
        say(f"{scale.waiting_turns:,} turns begin to wait")
        await anyio.to_thread.run_sync(_park_many, stack, scale.waiting_turns)
        await anyio.sleep(scale.waiting_s / 2)
        say(f"{scale.waiting_turns:,} turns wait")
        many_cpu, many_mib = await meter.cpu_percent(scale.waiting_s), meter.memory_mib()
        grown = sum(many_mib.values()) - sum(few_mib.values())
        section.add("memory of all of them", "MiB", [grown])
        for name, mib in many_mib.items():
            section.add(f"of it in {name}", "MiB", [mib - few_mib[name]])
        section.add("processor before", "% of a core", [few_cpu])
        section.add("processor with them", "% of a core", [many_cpu])
        more = (many_cpu - few_cpu) / _TARGET_CPU
        section.ratios += [
            Ratio(f"memory / {_TARGET_MIB:g} MiB", (grown / _TARGET_MIB,), "at most", 1.0),
            Ratio(f"processor, more than before / {_TARGET_CPU:g} % of a core", (more,), "at most", 1.0),
        ]

        async def answer() -> float:
            return await anyio.to_thread.run_sync(_answer, stack)

        async def message() -> float:
            return await anyio.to_thread.run_sync(_message, stack)

        contenders = [Contender("answer to next step", "ms", answer), Contender("message to first step", "ms", message)]
        section.readings += await take_turns(contenders, scale.rounds, say)
    section.compare("answer to next step", "message to first step")
    return section
