"""From a message to the first piece of the answer, beside the same with a cold machine that is waited for first."""

import time
from statistics import median

import anyio.to_thread

from bench.loop_parts import FINISHED, FIRST_DELTA, Talk, open_loop_stack, talking
from bench.machines_stack import Stack
from bench.measure import Contender, Say, Section, percentile, take_turns
from bench.scale import Scale
from bench.workshop import Workshop

NAME = "loop-first-delta"
TITLE = "The loop: first delta"
UNIT = "ms"
DELAYS_MS = (0, 300)
WHAT = (
    "A message in a new conversation, until a follower over HTTP has the first piece of the model's answer; "
    "{scale.first_deltas} messages a round, one after the other. The provider is a process of its own that is asked "
    "over HTTP through the official SDK; its first token comes after 0 ms, and after 300 ms. `coupled`: the same way, "
    "made to wait for a machine first: the client asks for one of the default environment, which starts cold, and "
    "sends its message when that is running. Stack and provider are the same, and the clock runs from the beginning."
)
PERCENTS = (50, 95)
_PAUSE_S = 0.05  # between two messages: what is measured is a quiet system, and not what the turn before left to do


class _Asker:
    """Sends messages of one kind, and keeps how long each round's slow ones took."""

    def __init__(self, stack: Stack, delay_ms: int, count: int, *, is_coupled: bool) -> None:
        self.name = f"{'coupled, ' if is_coupled else ''}first token at {delay_ms} ms"
        self.slow: list[float] = []
        self._stack = stack
        self._text = f"[[slow {delay_ms / 1000}]] [[say Done.]]"
        self._count = count
        self._is_coupled = is_coupled

    def _ask(self, talk: Talk) -> float:
        """Milliseconds."""
        waited_s, machine = 0.0, None
        if self._is_coupled:
            [machine], waited_s = self._stack.create_many("default", 1)
        sent_at = talk.send(self._text)
        came_at = talk.wait_for(FIRST_DELTA)
        talk.wait_for(FINISHED)
        talk.end_turn()
        if machine is not None:
            self._stack.line.delete(machine)
        time.sleep(_PAUSE_S)
        return (waited_s + came_at - sent_at) * 1000

    def _ask_many(self) -> float:
        taken = []
        for _ in range(self._count):
            with talking(self._stack) as talk:
                taken.append(self._ask(talk))
        self.slow.append(percentile(taken, 95))
        return median(taken)

    @property
    def contender(self) -> Contender:
        async def run() -> float:
            return await anyio.to_thread.run_sync(self._ask_many)

        return Contender(f"{self.name}, p50", UNIT, run)


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_loop_stack(workshop, has_machines=True) as stack:
        askers = [
            _Asker(stack, delay_ms, scale.first_deltas, is_coupled=is_coupled)
            for delay_ms in DELAYS_MS
            for is_coupled in (False, True)
        ]
        section.readings = await take_turns([each.contender for each in askers], scale.first_delta_rounds, say)
    for asker in askers:
        section.add(f"{asker.name}, p95", UNIT, asker.slow[1:])
    for delay_ms in DELAYS_MS:
        for percent, target in zip(PERCENTS, (0.4, 0.1), strict=True):
            ours = f"first token at {delay_ms} ms, p{percent}"
            if delay_ms == 0:
                section.compare(ours, f"coupled, {ours}", "at most", target)
            else:
                section.compare(ours, f"coupled, {ours}")
    return section
