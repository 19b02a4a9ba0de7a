"""Many conversations at once: turns and actions of Temporal in a second, beside bare workflows of the same shape."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import anyio
import anyio.to_thread
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from bench.loop_bare import BareTurns
from bench.loop_parts import Talk, open_loop_stack, talking
from bench.machines_stack import Stack
from bench.measure import Contender, Say, Section, take_turns
from bench.scale import Scale
from bench.workshop import Workshop
from outlive.wiring.temporal import connect_temporal

NAME = "loop-throughput"
TITLE = "The loop: many conversations"
UNIT = "turns/s"
ACTIONS_UNIT = "actions/s"
WHAT = (
    "So many conversations at once, each with a client that sends a message, follows the turn to its end and sends the "
    "next, at least twice; the turns, the provider and the bare workflows are those of one turn above. "
    "Actions are what Temporal counts: a workflow that starts, an update, an activity, and a marker of a local "
    "activity; how many a turn takes is read from the history of one. API, worker, Temporal, provider and clients "
    "share the cores."
)
_COUNTED = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
)


def _take_turns(talks: Sequence[Talk], turns: int) -> float:
    """All of them at once, each one turn after the other; turns per second."""

    def talk_on(talk: Talk) -> None:
        for _ in range(turns):
            talk.take_turn()

    with ThreadPoolExecutor(len(talks)) as pool:
        started_at = time.perf_counter()
        list(pool.map(talk_on, talks))
        return len(talks) * turns / (time.perf_counter() - started_at)


def _ours(stack: Stack, count: int, turns: int) -> Contender:
    def take() -> float:
        with ExitStack() as opened:
            talks = [opened.enter_context(talking(stack)) for _ in range(count)]
            return _take_turns(talks, turns)

    async def run() -> float:
        return await anyio.to_thread.run_sync(take)

    return Contender(_name(count), UNIT, run)


def _bare(bare: BareTurns, count: int, turns: int) -> Contender:
    async def go_on() -> None:
        for _ in range(turns):
            await bare.take_turn()

    async def run() -> float:
        started_at = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(go_on)
        return count * turns / (time.perf_counter() - started_at)

    return Contender(f"bare workflow, {_name(count)}", UNIT, run)


def _name(count: int) -> str:
    return "1 conversation" if count == 1 else f"{count} conversations"


async def _actions(stack: Stack, client: Client) -> int:
    """That one turn takes."""
    with talking(stack) as talk:
        await anyio.to_thread.run_sync(talk.take_turn)
        handle = client.get_workflow_handle(talk.id)
        await handle.result()
        return len([event async for event in handle.fetch_history_events() if event.event_type in _COUNTED])


async def run(workshop: Workshop, scale: Scale, say: Say) -> Section:
    section = Section(NAME, TITLE, WHAT.format(scale=scale))
    say("starting a stack")
    with open_loop_stack(workshop, has_machines=False) as stack:
        client = await connect_temporal(stack.settings)
        bare = BareTurns(workshop, stack.settings, client)
        actions = await _actions(stack, client)
        for count in scale.loop_crowds:
            turns = max(2, scale.loop_crowd_turns // count)
            contenders = [_ours(stack, count, turns), _bare(bare, count, turns)]
            section.readings += await take_turns(contenders, scale.loop_crowd_rounds, say)
        bare.stop()
    for count in scale.loop_crowds:
        rates = section.reading(_name(count)).rounds
        section.add(f"actions, {_name(count)}", ACTIONS_UNIT, [rate * actions for rate in rates])
        section.compare(_name(count), f"bare workflow, {_name(count)}")
    section.notes.append(f"A turn takes {actions} actions.")
    return section
