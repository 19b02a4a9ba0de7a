"""A whole turn through the stack, beside a bare workflow that asks the same of Temporal and does nothing."""

import anyio.to_thread

from bench.loop_bare import BareTurns
from bench.loop_parts import open_loop_stack, talking
from bench.machines_stack import Stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.wiring.temporal import connect_temporal

NAME = "loop-turn"
TITLE = "The loop: one turn"
UNIT = "ms"
OURS = "turn"
BARE = "bare workflow"
WHAT = (
    "A message in a new conversation, until a follower over HTTP has the end of its turn: three answers of a model and "
    "two tool calls, one after the other. The model is a provider without delay, a process of its own that is asked "
    "over HTTP through the official SDK; the tool ends at once. Everything on the way is in the log, synced, before "
    f"the next begins: 13 appends. `{BARE}`: a workflow on the same Temporal server that is started in the same way "
    "and asks the same of it (five activities, one after the other, then a local one), whose activities do "
    "nothing, in a worker of its own with the same options; until its result is there."
)


def _take_turn(stack: Stack) -> tuple[str, float]:
    with talking(stack) as talk:
        return talk.id, talk.take_turn() * 1000


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a stack")
    with open_loop_stack(workshop, has_machines=False) as stack:
        client = await connect_temporal(stack.settings)
        bare = BareTurns(workshop, stack.settings, client)

        async def ours() -> float:
            conversation, taken = await anyio.to_thread.run_sync(_take_turn, stack)
            # What is left to do for Temporal when the turn is over must not be in the way of who comes next.
            await client.get_workflow_handle(conversation).result()
            return taken

        async def barest() -> float:
            return await bare.take_turn() * 1000

        contenders = [Contender(OURS, UNIT, ours), Contender(BARE, UNIT, barest)]
        for _ in range(scale.loop_warming):
            for contender in contenders:
                await contender.run()
        section.readings = await take_turns(contenders, scale.loop_turn_rounds, say)
        bare.stop()
    section.compare(OURS, BARE, "at most", 1.5)
    return section
