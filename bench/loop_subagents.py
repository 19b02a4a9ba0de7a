"""A turn with a subagent on the same machine, a fork of it and a new one, beside a bare workflow with a child."""

import json

import anyio.to_thread

from bench.loop_bare import BareTurns
from bench.loop_parts import FINISHED, Talk, open_loop_stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.wiring.temporal import connect_temporal

NAME = "loop-subagents"
TITLE = "The loop: subagents"
UNIT = "ms"
MACHINES = ("same", "fork", "new")
BARE = "bare child workflow"
WHAT = (
    "A message in a conversation whose machine is up, until a follower has the end of its turn: an answer that calls a "
    "subagent, which answers, runs `true` in its machine and answers again; then the last answer. It works in the "
    "`same` machine, in a `fork` of it (a checkpoint with its memory, restored), or in a `new` one (cold). "
    f"`{BARE}`: a workflow on the same Temporal server with as many activities that do nothing, and a child of it."
)
_CHILD = '[[tool shell {"command": "true"}]] [[say Done.]]'
_FIRST = '[[tool shell {"command": "true"}]] [[say Ready.]]'


def _calling(machine: str) -> str:
    """Brackets in the prompt of the subagent are for the subagent's model: the parent's must not see them."""
    arguments = json.dumps({"prompt": _CHILD, "machine": machine}).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[tool subagent {arguments}]] [[say Done.]]"


def _take_turn(talk: Talk, text: str) -> float:
    """Milliseconds."""
    sent_at = talk.send(text)
    ended_at = talk.wait_for(FINISHED)
    talk.end_turn()
    return (ended_at - sent_at) * 1000


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT)
    say("starting a stack and a machine")
    with open_loop_stack(workshop, has_machines=True) as stack:
        bare = BareTurns(workshop, stack.settings, await connect_temporal(stack.settings))
        talk = await anyio.to_thread.run_sync(Talk, stack, stack.line)
        await anyio.to_thread.run_sync(_take_turn, talk, _FIRST)

        def on(machine: str) -> Contender:
            async def take() -> float:
                return await anyio.to_thread.run_sync(_take_turn, talk, _calling(machine))

            return Contender(machine, UNIT, take)

        async def barest() -> float:
            return await bare.take_family_turn() * 1000

        contenders = [*(on(machine) for machine in MACHINES), Contender(BARE, UNIT, barest)]
        section.readings = await take_turns(contenders, scale.subagent_rounds, say)
        talk.close()
        bare.stop()
    for machine in MACHINES:
        section.compare(machine, BARE)
    return section
