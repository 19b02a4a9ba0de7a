"""Replays for real: recorded turns, written here as a worker would, run again on another model of the pretend provider.

There are no machines here: a call that was really run would be rejected, and not have the output of the recording.
"""

import json
from typing import Any

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, Stage, data_of, types
from outlive.base import ConversationId, TurnId, new_operation_id
from outlive.conversation import EventData, StepWriter, start_step
from outlive.conversation.events import (
    Event,
    ModelResponded,
    NewEvent,
    ToolCall,
    ToolFinished,
    ToolRequested,
    TurnFinished,
    TurnStarted,
)
from outlive.conversation.log import Append
from outlive.loop.fold import step_id
from outlive.loop.replays import compare_turns, start_replay
from outlive.loop.replays.answering import PARTED
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

OTHER = "anthropic:other"
AT = "2026-01-01T00:00:00.000000Z"
# Asked of `other` it does the same; asked of `stray` it goes astray after its first call; of `beside`, among others.
SCRIPT = """[[say I look.]] [[tool shell {"command": "ls"}]]
[[tool shell {"command": "ls"}]] [[say Two files.]] [[quote 99]]
[[as stray]] [[tool shell {"command": "ls"}]] [[tool shell {"command": "rm -r /"}]] [[say Gone.]]
[[as beside]] [[tool read_file {"path": "b"}]] [[also tool shell {"command": "ls"}]]
[[also tool read_file {"path": "a"}]] [[say Hm.]]"""


class Recorder:
    """Writes a turn into the log as a worker would."""

    def __init__(self, stage: Stage, conversation: ConversationId, turn: TurnId) -> None:
        self._stage = stage
        self._conversation = conversation
        self._turn = turn
        self._n = 0

    async def say(self, data: EventData) -> None:
        append = Append(
            self._conversation, (NewEvent(data, AT),), key=f"{data.type}", actor="agent:coder", turn=self._turn
        )
        await self._stage.parts.conversations.append(append)

    async def answer(self, text: str, *calls: tuple[str, dict[str, Any], str]) -> None:
        """`calls`: the name, the arguments and what it came to."""
        called = [
            ToolCall(id=f"call_{self._n}_{n}", name=name, arguments=args) for n, (name, args, _) in enumerate(calls)
        ]
        await (await self._step("model", "openai:was")).seal(
            ModelResponded(text=text, tool_calls=called, model="openai:was")
        )
        for call, (_, _, output) in zip(called, calls, strict=True):
            writer = await self._step("tool", call.name)
            await writer.record(ToolRequested(call=call.id, name=call.name, arguments=call.arguments, effect="eff_1"))
            await writer.seal(
                ToolFinished(call=call.id, effect="eff_1", outcome="finished", output=output, exit_code=0)
            )

    async def _step(self, kind: Any, name: str) -> StepWriter:
        self._n += 1
        return await start_step(
            self._stage.parts.conversations,
            self._conversation,
            turn=self._turn,
            step=step_id(self._turn, self._n),
            attempt=1,
            kind=kind,
            name=name,
            actor="agent:coder",
        )


async def record(stage: Stage, text: str = SCRIPT) -> tuple[ConversationId, TurnId]:
    """`ls` twice, with another output each time."""
    conversation = await stage.converse(title="Look", metadata={"ticket": 17})
    turn = await stage.record(conversation, text)
    to = Recorder(stage, conversation, turn)
    bound = await stage.parts.agents.bind(None, "openai:was")
    await to.say(TurnStarted(agent=bound.agent, version=bound.version, model="openai:was"))
    await to.answer("I look.", ("shell", {"command": "ls"}, "one.txt\n"))
    await to.answer("", ("shell", {"command": "ls"}, "one.txt two.txt\n"))
    await to.answer("Two files.")
    await to.say(TurnFinished(outcome="done"))
    return conversation, turn


async def replay(stage: Stage, of: ConversationId, model: str, **more: Any) -> tuple[ConversationId, list[Event]]:
    """To its end; its own events."""
    made, turn = await start_replay(
        stage.parts.conversations, new_operation_id(), of, actor=PERSON, model=model, **more
    )
    await stage.loop.submit(made.id, turn)
    assert made.parent is not None
    return made.id, (await stage.ended(made.id, turn))[made.parent[1] :]


async def test_calls_that_are_those_of_the_recording_get_its_results_in_order_and_nothing_is_run(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await record(stage)
    made, events = await replay(stage, conversation, OTHER)
    assert types(events)[:4] == ["conversation.created", "message.sent", "replay.started", "turn.started"]
    [started] = data_of(events, "replay.started")
    assert (started["conversation"], started["turn"], started["execute"]) == (conversation, turn, False)
    assert [each["output"] for each in data_of(events, "tool.finished")] == ["one.txt\n", "one.txt two.txt\n"]
    assert data_of(events, "model.responded")[-1]["text"] == "Two files.one.txt two.txt\n", "it was told so"
    assert data_of(events, "replay.parted") == []
    assert (data_of(events, "turn.started")[0]["model"], len(provider.calls)) == (OTHER, 3)
    facts = await stage.parts.conversations.get(made)
    assert (facts.title, facts.metadata, facts.machine) == ("Look", {"ticket": 17}, None)

    found = (await compare_turns(stage.parts.conversations, made)).to_json()
    assert (found["left"]["model"], found["right"]["model"]) == ("openai:was", OTHER)
    assert [row["same"] for row in found["rows"]] == [True, True, True, True, False]
    other = (await compare_turns(stage.parts.conversations, made, conversation)).to_json()
    assert other["rows"] == found["rows"]


async def test_where_a_replay_parts_from_its_recording_it_says_so_and_ends(stage: Stage) -> None:
    conversation, _ = await record(stage)
    made, events = await replay(stage, conversation, "anthropic:stray")
    assert [each["output"] for each in data_of(events, "tool.finished")] == ["one.txt\n"]
    [parted] = data_of(events, "replay.parted")
    assert (parted["name"], parted["answered"], parted["execute"]) == ("shell", 1, False)
    assert [each["arguments"] for each in data_of(events, "tool.requested")] == [{"command": "ls"}]
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": PARTED}]
    found = (await compare_turns(stage.parts.conversations, made)).to_json()
    assert found["parted"] == parted
    assert found["rows"][3]["right"]["outcome"] is None


async def test_of_calls_at_the_same_time_those_before_the_parting_are_answered_and_the_turn_ends(stage: Stage) -> None:
    """The first is none of the recording: nothing after it is answered either."""
    conversation, _ = await record(stage)
    _, events = await replay(stage, conversation, "anthropic:beside")
    assert data_of(events, "tool.requested") == []
    assert [each["name"] for each in data_of(events, "replay.parted")] == ["read_file"]
    assert types(events)[-1] == "turn.finished"


async def test_with_execute_it_is_really_done_from_where_they_part(stage: Stage) -> None:
    conversation, _ = await record(stage)
    _, events = await replay(stage, conversation, "anthropic:stray", execute=True)
    first, second = data_of(events, "tool.finished")
    assert (first["outcome"], first["output"]) == ("finished", "one.txt\n")
    assert second["outcome"] == "rejected"
    assert "There are no machines here" in second["output"], "it was tried"
    assert "a replay on a machine of its own" in second["output"], "and the model is told what is not there"
    assert [each["execute"] for each in data_of(events, "replay.parted")] == [True]
    assert data_of(events, "turn.finished")[0]["reason"] is None


async def test_a_replay_that_is_asked_for_again_is_the_same_one(stage: Stage) -> None:
    conversation, turn = await record(stage)
    operation = new_operation_id()
    conversations = stage.parts.conversations
    first, opened = await start_replay(conversations, operation, conversation, actor=PERSON, model=OTHER)
    await stage.ended(conversation, await stage.send(conversation, "[[say Since then.]]"))
    again, same = await start_replay(conversations, operation, conversation, actor=PERSON, model=OTHER)
    assert (again.id, same) == (first.id, opened)
    await stage.loop.submit(first.id, opened)
    events = await stage.ended(first.id, opened)
    assert [each["turn"] for each in data_of(events, "replay.started")] == [turn], "not the one that came since"
    assert len(data_of(events[first.parent[1] if first.parent else 0 :], "message.sent")) == 1


async def test_a_replay_that_was_cut_off_before_its_messages_were_sent_is_of_the_turn_that_was_meant(
    stage: Stage,
) -> None:
    conversation, turn = await record(stage)
    operation = new_operation_id()
    cut_off = await stage.parts.conversations.create(operation, actor=PERSON, parent=(conversation, 1))
    await stage.ended(conversation, await stage.send(conversation, "[[say Since then.]]"))
    made, opened = await start_replay(stage.parts.conversations, operation, conversation, actor=PERSON, model=OTHER)
    assert made.id == cut_off.id
    assert [each["turn"] for each in data_of(await stage.events(made.id), "replay.started")] == [turn]
    await stage.loop.submit(made.id, opened)
    await stage.ended(made.id, opened)


async def test_what_follows_a_replay_is_a_turn_like_any_other(stage: Stage) -> None:
    conversation, _ = await record(stage)
    made, _ = await replay(stage, conversation, "anthropic:stray")
    turn = await stage.send(made, '[[tool shell {"command": "ls"}]] [[say Done.]]', "anthropic:other")
    events = await stage.ended(made, turn)
    assert (
        json.loads([event for event in events if event.type == "tool.finished"][-1].data_json)["outcome"] == "rejected"
    )


async def test_who_speaks_into_a_replay_gets_an_answer_though_it_has_parted(stage: Stage) -> None:
    script = '[[say x]] [[as stray]] [[slow 3]] [[tool shell {"command": "pwd"}]] [[say Not run, I see.]]'
    conversation, _ = await record(stage, script)
    made, turn = await start_replay(
        stage.parts.conversations, new_operation_id(), conversation, actor=PERSON, model="anthropic:stray"
    )
    await stage.loop.submit(made.id, turn)
    await eventually(lambda: stage.has(made.id, "step.started"), 60.0)
    joined = await stage.send(made.id, "And what do you see?")
    events = await stage.ended(made.id, joined)
    said = max(event.seq for event in events if event.type == "message.sent")
    assert max(event.seq for event in events if event.type == "step.started") > said, "it was asked once more"
    assert types(events)[-1] == "turn.finished"
    if joined == turn:  # as it is, unless this host takes seconds for a message
        assert [each["outcome"] for each in data_of(events, "tool.finished")] == ["rejected"]
