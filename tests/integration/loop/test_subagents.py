"""Subagents: a call that is a conversation of its own. It is waited for at no cost and told of once."""

import json
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, types
from outlive.base import ConversationId, StepId, TurnId, to_text
from outlive.conversation.events import Delta, Event, NewEvent, SubagentFinished, ToolCall, TurnFinished
from outlive.conversation.log import Append
from outlive.conversation.position import START
from outlive.loop.activities.scribe import operator_of
from outlive.loop.agents import AgentDefinition
from outlive.loop.holds import effect_of
from outlive.loop.state import Binding
from outlive.loop.subagents.family import Subagents
from outlive.loop.sweeper import TurnSweeper
from outlive.loop.tools import ToolContext, ToolParts
from outlive.loop.tools.registry import interrupt_tool
from outlive.loop.views import Views

pytestmark = pytest.mark.anyio

SLOW = '[[tool wait {"seconds": 600}]] [[say Late.]]'
SHORT = '[[tool wait {"seconds": 2}]] '
TOOLS = ("read_file", "wait", "subagent")


async def begin(stage: Stage, text: str) -> tuple[ConversationId, TurnId]:
    definition = AgentDefinition(name="lead", model="openai:pretend", instructions="Delegate.", tools=TOOLS)
    await stage.parts.agents.apply(definition, by=PERSON)
    conversation = await stage.converse(agent="lead")
    return conversation, await stage.send(conversation, text)


def call(prompt: str, word: str = "tool", **more: Any) -> str:
    """A call of the tool; the script for the subagent is in its prompt, so that the parent's own does not end there."""
    given = json.dumps({"prompt": prompt, **more}).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[{word} subagent {given}]]" if word == "tool" else f"[[also tool subagent {given}]]"


def sweeper_of(stage: Stage) -> TurnSweeper:
    look_after = stage.made.sweeper._look_after
    return TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=0.0, look_after=look_after)


async def children(stage: Stage, conversation: ConversationId, count: int = 1) -> list[ConversationId]:
    async def started() -> bool:
        return len(data_of(await stage.events(conversation), "subagent.started")) >= count

    await eventually(started, WITHIN_S)
    begun = data_of(await stage.events(conversation), "subagent.started")
    return [ConversationId(each["conversation"]) for each in begun]


def happened(events: list[Event]) -> list[str]:
    return [type for type in types(events) if type.split(".")[0] in ("tool", "subagent", "turn")]


async def is_waiting_for(stage: Stage, conversation: ConversationId) -> bool:
    """Whether the turn has nothing under way."""
    described = await stage.client.get_workflow_handle(conversation).describe()
    return not described.raw_description.pending_activities


async def test_the_answer_of_a_subagent_is_the_result_and_nothing_runs_meanwhile(stage: Stage) -> None:
    conversation, turn = await begin(stage, f"{call(SHORT + '[[say Forty-two.]]')} [[quote 12]]")
    [child] = await children(stage, conversation)
    await eventually(lambda: is_waiting_for(stage, conversation), WITHIN_S)
    assert (await stage.parts.conversations.get(conversation)).state == "running", "nobody has to answer anything"
    events = await stage.ended(conversation, turn)
    assert happened(events) == [
        *("turn.started", "tool.requested", "subagent.started", "subagent.finished", "tool.finished", "turn.finished")
    ]
    [result] = data_of(events, "tool.finished")
    assert (result["outcome"], result["output"]) == ("finished", f"Forty-two.\n[subagent {child}]")
    assert data_of(events, "model.responded")[-1]["text"] == "Forty-two.\n["
    assert data_of(events, "subagent.finished") == [{"conversation": child, "outcome": "done"}]
    link = (await stage.parts.conversations.get(child)).metadata["subagent"]
    assert isinstance(link, dict)
    assert (link["conversation"], link["turn"], link["depth"]) == (conversation, turn, 1)


async def test_several_of_one_answer_work_at_the_same_time_and_a_failed_one_says_why(stage: Stage) -> None:
    both = f"{call(SHORT + '[[say One.]]')} {call('[[stop refusal]] [[say No.]]', 'also')}"
    third = call("Hi", "also", agent="nobody")
    conversation, turn = await begin(stage, f"{both} {third} [[say Done.]]")
    events = await stage.ended(conversation, turn)
    started, ended = types(events).index("subagent.finished"), types(events).count("subagent.started")
    assert (types(events)[:started].count("subagent.started"), ended) == (3, 3), "all began before the first ended"
    outcomes = {each["call"]: (each["outcome"], each["output"]) for each in data_of(events, "tool.finished")}
    one, two, three = (outcomes[each["id"]] for each in data_of(events, "model.responded")[0]["tool_calls"])
    assert one[0] == "finished"
    assert two[0] == "failed"
    assert "The model refused" in two[1]
    assert three[0] == "failed"
    assert "There is no agent 'nobody'" in three[1]


async def test_a_detached_one_reports_once_to_a_turn_that_is_long_over(stage: Stage) -> None:
    slow = '[[tool wait {"seconds": 2}]] [[say All is well.]]'
    conversation, turn = await begin(stage, f"{call(slow, detached=True)} [[say Begun.]]")
    events = await stage.ended(conversation, turn)
    assert "subagent.finished" not in types(events)
    [child] = await children(stage, conversation)
    await eventually(lambda: stage.is_idle(conversation, turns=2), WITHIN_S)
    view = await stage.events(conversation)
    reports = [event for event in view if event.type == "message.sent" and event.actor == f"subagent:{child}"]
    assert [event.data["text"] for event in reports] == [f"[report of subagent {child}]\nAll is well."]
    await stage.made.sweeper.sweep()
    assert len(await stage.events(conversation)) == len(view)


async def test_a_report_and_the_end_that_it_tells_of_join_the_turn_that_is_open(stage: Stage) -> None:
    """They are one batch, and it must not name a turn that never begins."""
    until_a_message = '[[tool wait {"seconds": 600}]]'
    conversation, turn = await begin(stage, f"{call(SLOW, detached=True)} {until_a_message} [[say Begun.]]")
    [child] = await children(stage, conversation)
    for each in (child, conversation):
        await eventually(lambda each=each: stage.has(each, "wait.started"), WITHIN_S)  # type: ignore[misc]
    await stage.send(child, "[[say All is well.]]")
    await stage.ended(conversation, turn)
    await eventually(lambda: stage.is_idle(conversation, turns=1), WITHIN_S)
    events = await stage.events(conversation)
    [finished] = [event for event in events if event.type == "subagent.finished"]
    assert {event.turn for event in events if event.turn} == {turn}
    assert "[report of subagent" in events[finished.seq].data["text"]


async def test_who_is_interrupted_interrupts_the_attached_and_not_the_detached(stage: Stage) -> None:
    nested = call(SLOW)
    conversation, turn = await begin(stage, f"{call(nested)} {call(SLOW, 'also', detached=True)} [[say Never.]]")
    await children(stage, conversation, 2)
    begun = data_of(await stage.events(conversation), "subagent.started")
    attached = next(ConversationId(each["conversation"]) for each in begun if not each["detached"])
    detached = next(ConversationId(each["conversation"]) for each in begun if each["detached"])
    [grandchild] = await children(stage, attached)
    await eventually(lambda: stage.has(grandchild, "wait.started"), WITHIN_S)
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason="enough")
    for each in (attached, grandchild):
        await eventually(lambda each=each: stage.has(each, "turn.finished"), WITHIN_S)  # type: ignore[misc]
        assert data_of(await stage.events(each), "turn.finished")[0]["outcome"] == "interrupted"
    assert not await stage.has(detached, "turn.finished")
    await stage.loop.interrupt(detached, TurnId(detached.replace("conv", "turn")), by=PERSON, reason=None)


async def test_one_that_had_ended_when_its_step_was_stopped_is_told_and_so_is_one_that_goes_on(stage: Stage) -> None:
    """By a worker that comes after the one that died with the step, say."""
    script = f"{call('[[say Forty-two.]]')} {call(SLOW, 'also', detached=True)} [[say Done.]]"
    conversation, turn = await begin(stage, script)
    ended = data_of(await stage.ended(conversation, turn), "tool.finished")
    started = data_of(await stage.events(conversation), "subagent.started")
    begun = {each["step"]: (each["conversation"], each["detached"]) for each in started}
    conversations = stage.parts.conversations
    family = Subagents(conversations, Views(conversations, {}), stage.loop, 10_000)
    parts = ToolParts(conversations, stage.parts.artifacts, subagents=family)
    told = []
    for step in begun:
        context = ToolContext(
            parts=parts,
            conversation=conversation,
            turn=turn,
            step=StepId(step),
            effect_id=effect_of(StepId(step)),
            operator=operator_of(conversation, Binding("lead", 1, "openai:pretend")),
            say=lambda text, stream: None,
            is_again=True,
        )
        told.append(await interrupt_tool(ToolCall(id="call_1", name="subagent", arguments={}), context))
    assert sorted((each.outcome, each.output) for each in told) == sorted((e["outcome"], e["output"]) for e in ended)
    detached = next(child for child, is_detached in begun.values() if is_detached)
    await stage.loop.interrupt(detached, TurnId(detached.replace("conv", "turn")), by=PERSON, reason=None)


async def test_what_nobody_was_told_the_sweeper_finds(stage: Stage) -> None:
    """The word to the parent, and the word to the child, are lost; their logs are not."""
    conversation, turn = await begin(stage, f"{call(SLOW)} [[say Done.]]")
    [child] = await children(stage, conversation)
    await eventually(lambda: stage.has(child, "turn.parked"), WITHIN_S)
    await stage.client.get_workflow_handle(conversation).terminate()
    await stage.client.get_workflow_handle(child).terminate()
    await sweeper_of(stage).sweep()
    await stage.loop.interrupt(child, TurnId(child.replace("conv", "turn")), by=PERSON, reason="no more")
    events = await stage.ended(conversation, turn)
    [result] = data_of(events, "tool.finished")
    assert result["outcome"] == "failed"
    assert "interrupted" in result["output"]


async def test_an_end_whose_word_was_lost_is_told_by_the_sweeper(stage: Stage) -> None:
    conversation, turn = await begin(stage, f"{call(SLOW)} [[say Done.]]")
    [child] = await children(stage, conversation)
    await eventually(lambda: is_waiting_for(stage, conversation), WITHIN_S)
    said = NewEvent(SubagentFinished(conversation=child, outcome="done"), to_text(stage.parts.clock.now()))
    key = f"subagent/{child}/finished"
    await stage.parts.conversations.append(Append(conversation, (said,), key=key, actor=PERSON, turn=turn))
    await sweeper_of(stage).sweep()
    events = await stage.ended(conversation, turn)
    assert data_of(events, "tool.finished")[0]["outcome"] == "lost", "nobody can say what came of it: it goes on"


async def test_one_whose_parent_ended_without_a_word_is_stopped_by_the_sweeper(stage: Stage) -> None:
    conversation, turn = await begin(stage, f"{call(SLOW)} [[say Done.]]")
    [child] = await children(stage, conversation)
    await eventually(lambda: stage.has(child, "turn.parked"), WITHIN_S)
    await stage.client.get_workflow_handle(conversation).terminate()
    ended = NewEvent(TurnFinished(outcome="failed"), to_text(stage.parts.clock.now()))
    await stage.parts.conversations.append(Append(conversation, (ended,), key="end", actor=PERSON, turn=turn))
    await sweeper_of(stage).sweep()
    await eventually(lambda: stage.has(child, "turn.finished"), WITHIN_S)
    assert data_of(await stage.events(child), "turn.finished")[0]["outcome"] == "interrupted"


async def test_they_may_be_three_deep_and_the_fourth_is_refused(stage: Stage) -> None:
    script = "[[quote 400]]"
    prompt = "[[say Bottom.]]"
    for _ in range(4):
        prompt = f"{call(prompt)} {script}"
    conversation, turn = await begin(stage, prompt)
    events = await stage.ended(conversation, turn)
    assert "3 deep" in data_of(events, "model.responded")[-1]["text"]


async def test_what_a_subagent_does_is_shown_in_short_as_live_output_of_the_call(stage: Stage) -> None:
    conversation, turn = await begin(stage, f"{call(SHORT + '[[say Done.]]')} [[say Over.]]")
    shown: list[str] = []
    is_over = False
    async with stage.parts.conversations.follow(conversation, START) as following:
        with anyio.fail_after(WITHIN_S):
            while not is_over:
                for frame in await following.next_frames():
                    shown += [frame.body.text] if isinstance(frame.body, Delta) and frame.body.call is not None else []
                    is_over = is_over or (isinstance(frame.body, Event) and frame.body.type == "turn.finished")
    assert "wait begins\n" in "".join(shown)
    await stage.ended(conversation, turn)
