"""Records the histories that `test_replay.py` replays, from turns of a real stack: `PYTHONPATH=tests python -m
replay.record NAME...`. Run it when the workflow has learnt something new, for the scenarios that are new; the histories
that are there stay, since turns like them may be open. A new one gets a name with its date if its name is taken.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from crash.loop.stacks import LoopStack, loop_stack
from crash.loop.talks import Talk, script
from eventually import eventually
from outlive.base import ConversationId, CrashPoint, TurnId, new_operation_id
from outlive.loop.plan import Begin, Plan
from outlive.loop.queues import LOOP
from outlive.loop.tasks import TURN, TurnTask
from outlive.wiring.build import open_conversations
from outlive.wiring.histories import export
from outlive.wiring.settings import Settings, read_settings
from outlive.wiring.temporal import connect_temporal

HISTORIES = Path(__file__).parent / "histories"
MARKER = "zanzibar"  # in everything that is said and printed: no history may hold it
WITHIN_S = 120.0

Scenario = Callable[[LoopStack, Talk], Awaitable[None]]


async def answer(stack: LoopStack, talk: Talk) -> None:
    await talk.ended(await talk.send("one", f"[[say {MARKER}]]"))


async def tools(stack: LoopStack, talk: Talk) -> None:
    await talk.ended(await talk.send("one", script(MARKER)))


async def parallel_tools(stack: LoopStack, talk: Talk) -> None:
    words = f'[[tool search {{"pattern": "{MARKER}"}}]] [[also tool list_files {{}}]] [[also tool read_file '
    await talk.ended(await talk.send("one", words + f'{{"path": "{MARKER}.txt"}}]] [[say {MARKER}]]'))


async def follow_up(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send("one", f"[[pace 0.3]] [[say {'and so on ' * 4} {MARKER}]]")
    await _shown(talk, "model.delta")
    await talk.send("two", f"[[say {MARKER}]]")
    await talk.ended(turn)


async def interrupted_answer(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send("one", f"[[pace 0.5]] [[say {'and so on ' * 20} {MARKER}]]")
    await _shown(talk, "model.delta")
    await _interrupt(stack, talk)
    await talk.ended(turn)


async def interrupted_command(stack: LoopStack, talk: Talk) -> None:
    command = json.dumps({"command": f"echo {MARKER}; sleep 60"})
    turn = await talk.send("one", f"[[tool shell {command}]] [[say done]]")
    await _shown(talk, "tool.output")
    await _interrupt(stack, talk)
    await talk.ended(turn)


async def provider_trouble(stack: LoopStack, talk: Talk) -> None:
    await talk.ended(await talk.send("one", f"[[error 529 x2]] [[say {MARKER}]]"))


async def failed(stack: LoopStack, talk: Talk) -> None:
    await talk.ended(await talk.send("one", f"[[error 400 always]] [[say {MARKER}]]"))


async def worker_died_in_an_answer(stack: LoopStack, talk: Talk) -> None:
    stack.arm(CrashPoint.MODEL_AFTER_FIRST_DELTA)
    await talk.ended(await talk.send("one", f"[[say {MARKER}]]"))


async def worker_died_in_a_command(stack: LoopStack, talk: Talk) -> None:
    stack.arm(CrashPoint.TOOL_BEFORE_SEAL)
    await talk.ended(await talk.send("one", script(MARKER)))


async def worker_died_before_the_end(stack: LoopStack, talk: Talk) -> None:
    stack.arm(CrashPoint.TURN_BEFORE_END)
    await talk.ended(await talk.send("one", f"[[say {MARKER}]]"))


async def restarted(stack: LoopStack, talk: Talk) -> None:
    """The loop was never told of the message; the sweeper finds it."""
    await talk.ended(await _record(stack, talk))


async def begun_with_a_plan(stack: LoopStack, talk: Talk) -> None:
    """As a run begins that goes on for one that got too long."""
    settings = _settings(stack)
    client = await connect_temporal(settings, WITHIN_S)
    turn = await _record(stack, talk)
    plan = Plan(conversation=ConversationId(talk.id), turn=TurnId(turn), seq=2, begin=Begin())
    await client.start_workflow(
        TURN, TurnTask(conversation=ConversationId(talk.id), plan=plan), id=talk.id, task_queue=LOOP
    )
    await talk.ended(turn)


async def asked_a_person(stack: LoopStack, talk: Talk) -> None:
    """It waits with its machine asleep, and goes on when it is answered."""
    question = json.dumps({"question": f"Is it {MARKER}?"})
    turn = await talk.send("one", f'[[tool shell {{"command": "true"}}]] [[tool ask_human {question}]] [[quote 50]]')
    await _parked(stack, talk)
    [asked] = [event.data for event in talk.seen if event.type == "approval.requested"]
    body = {"decision": "approve", "comment": MARKER}
    await anyio.to_thread.run_sync(stack.ask, "POST", f"/v1/approvals/{asked['approval']}", body)
    await talk.ended(turn)


async def waited(stack: LoopStack, talk: Talk) -> None:
    await talk.ended(await talk.send("one", f'[[tool wait {{"seconds": 3}}]] [[say {MARKER}]]'))


async def spoken_to_while_waiting(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send("one", f'[[tool wait {{"seconds": 86400}}]] [[say {MARKER}]]')
    await _parked(stack, talk)
    await talk.send("two", f"[[say {MARKER}]]")
    await talk.ended(turn)


async def interrupted_while_waiting(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send("one", f'[[tool wait {{"seconds": 86400}}]] [[say {MARKER}]]')
    await _parked(stack, talk)
    await _interrupt(stack, talk)
    await talk.ended(turn)


async def paused(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send(
        "one", f'[[pace 0.3]] [[say {"and so on " * 4}]] [[tool shell {{"command": "true"}}]] [[say {MARKER}]]'
    )
    await _shown(talk, "model.delta")
    await talk.conversation.pause(MARKER)
    await _parked(stack, talk)
    await talk.conversation.resume()
    await talk.ended(turn)


async def fallback(stack: LoopStack, talk: Talk) -> None:
    """The model is away; another one stands in for it, and a person wants a third one to go on."""
    definition = {"name": "coder", "model": "openai:first", "instructions": MARKER, "tools": ["list_files"]}
    given = {**definition, "fallbacks": ["openai:second"]}
    await anyio.to_thread.run_sync(stack.ask, "POST", "/v1/agents", given)
    await talk.conversation.change_model("openai:first", scope="conversation")
    away = "[[as first]] [[error 529 always retry-after-ms=50]]"
    turn = await talk.send("one", f"[[slow 3]] [[tool list_files {{}}]] [[say {MARKER}]] {away}")
    await _shown(talk, "model.fallback")
    await talk.conversation.change_model("openai:third")
    await talk.ended(turn)


async def hurried(stack: LoopStack, talk: Talk) -> None:
    command = json.dumps({"command": f"echo {MARKER}; sleep 60"})
    turn = await talk.send("one", f"[[tool shell {command}]] [[say done]]")
    await _shown(talk, "tool.output")
    await talk.conversation.send(f"[[say {MARKER}]]", when="now")
    await talk.ended(turn)


async def compacted(stack: LoopStack, talk: Talk) -> None:
    turn = await talk.send("one", f"[[pace 0.3]] [[say {'and so on ' * 4} {MARKER}]]")
    await _shown(talk, "model.delta")
    await talk.conversation.compact(keep=1)
    await talk.ended(turn)


SCENARIOS: tuple[Scenario, ...] = (
    *(answer, tools, parallel_tools, follow_up, interrupted_answer, interrupted_command, provider_trouble, failed),
    *(worker_died_in_an_answer, worker_died_in_a_command, worker_died_before_the_end, restarted, begun_with_a_plan),
    *(asked_a_person, waited, spoken_to_while_waiting, interrupted_while_waiting, paused, fallback, hurried, compacted),
)


async def _shown(talk: Talk, type: str) -> None:
    await eventually(lambda: any(event.type == type for event in talk.seen), WITHIN_S)


async def _parked(stack: LoopStack, talk: Talk) -> None:
    """Once the turn waits, and no activity of it is under way."""
    await _shown(talk, "turn.parked")
    handle = (await connect_temporal(_settings(stack), WITHIN_S)).get_workflow_handle(talk.id)

    async def is_quiet() -> bool:
        return not (await handle.describe()).raw_description.pending_activities

    await eventually(is_quiet, WITHIN_S)


async def _interrupt(stack: LoopStack, talk: Talk) -> None:
    path = f"/v1/conversations/{talk.id}/interrupt"
    await anyio.to_thread.run_sync(stack.ask, "POST", path, {})


async def _record(stack: LoopStack, talk: Talk) -> str:
    """A message in the log, and nobody is told."""
    async with open_conversations(_settings(stack)) as conversations:
        sent = await conversations.send(
            new_operation_id(), ConversationId(talk.id), actor=talk.conversation.facts.created_by or "", text=MARKER
        )
    return sent.turn


def _settings(stack: LoopStack) -> Settings:
    return read_settings({"home": str(stack.home.path)})


async def _record_all(stack: LoopStack, folder: Path, names: frozenset[str]) -> None:
    for scenario in (each for each in SCENARIOS if each.__name__ in names):
        async with stack.talks() as [talk]:
            await scenario(stack, talk)
            await anyio.to_thread.run_sync(stack.wait_until_well)
            found: list[Any] = []

            async def is_over(talk: Talk = talk, found: list[Any] = found) -> bool:
                found[:] = await export(_settings(stack), folder, ConversationId(talk.id), 10)
                return bool(found) and all(each.state == "completed" for each in found)

            await eventually(is_over, WITHIN_S)
        for number, each in enumerate(reversed(found), 1):
            name = scenario.__name__ + (f"_{number}" if len(found) > 1 else "")
            shutil.copyfile(each.path, HISTORIES / f"{name}.json")
            print(f"{name}: {each.events} events, {each.size:,} bytes", flush=True)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="outlive-record-") as folder,
        loop_stack(Path(folder), OUTLIVE_LOOP__SWEEP_S="4") as stack,
    ):
        anyio.run(_record_all, stack, Path(folder) / "histories", frozenset(sys.argv[1:]))
        stack.down()


if __name__ == "__main__":
    main()
