"""Conversations that grow too long: what is old is summarised once, in a step of its own, and nothing is lost."""

import json
from typing import Any

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, types
from outlive.base import ConversationId, TurnId, new_operation_id
from outlive.conversation.events import Event
from outlive.conversation.projection import Transcript
from outlive.loop.agents import AgentDefinition
from outlive.loop.budgets.raising import Budgets
from outlive.loop.compacting import OPENING
from outlive.loop.pinning import Pins
from outlive.loop.steering import Steering
from outlive.testing.pretend_provider import PretendProvider, Trouble

pytestmark = pytest.mark.anyio

RULES = {"at": 0.6, "keep": 3, "context_tokens": 8_000}
LONG = "[[big 3000]]"  # an answer of 750 tokens


async def forgetful(stage: Stage, model: str = "openai:pretend", **more: Any) -> ConversationId:
    """A conversation with an agent that soon has too much to read."""
    given = {"name": "forgetful", "model": model, "instructions": "Go on.", "tools": ("read_file",)}
    definition = AgentDefinition.model_validate({**given, "compaction": RULES, **more})
    await stage.parts.agents.apply(definition, by=PERSON)
    return await stage.converse(agent="forgetful")


async def talk_until(stage: Stage, conversation: ConversationId, type: str, turns: int = 20) -> list[Event]:
    """Turn after turn, until something happened."""
    for number in range(turns):
        turn = await stage.send(conversation, f"message {number} {LONG} [[summary What was said so far.]]")
        events = await stage.ended(conversation, turn)
        if type in types(events):
            return events
    raise AssertionError(f"no {type} in {turns} turns")


async def say(stage: Stage, conversation: ConversationId, *texts: str) -> list[Event]:
    events: list[Event] = []
    for text in texts:
        events = await stage.ended(conversation, await stage.send(conversation, text))
    return events


async def compact(stage: Stage, conversation: ConversationId, keep: int | None = None) -> TurnId | None:
    steering = Steering(stage.parts.conversations, stage.loop)
    state = await steering.compact(new_operation_id(), conversation, actor=PERSON, keep=keep)
    return state.turn.id if state.turn is not None else None


def asked(provider: PretendProvider, step: str | None) -> list[dict[str, Any]]:
    """What the provider was asked at a step."""
    return [json.loads(provider.ledger.request(call.number) or b"{}") for call in provider.calls if call.step == step]


def compactions(events: list[Event]) -> list[Event]:
    return [event for event in events if event.type == "compaction.finished"]


async def test_a_conversation_that_grows_too_long_is_compacted_once_and_nothing_is_lost(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await forgetful(stage, budget={"conversation": {"tokens": 10**9, "steps": 10**4}})
    first = await say(stage, conversation, f"the rule: never push {LONG}")
    pinned = data_of(first, "message.sent")[0]["message"]
    await Pins(stage.parts.conversations).change(conversation, pinned, actor=PERSON, is_pinned=True)
    events = await talk_until(stage, conversation, "compaction.finished")

    [request] = data_of(events, "compaction.requested")
    assert request == {"reason": "full", "keep": None, "step": None, "tokens": None}
    [sealed] = compactions(events)
    done = sealed.data
    assert (done["outcome"], done["summary"]) == ("compacted", "What was said so far.")
    assert 0 < done["after"] < done["before"]
    steps = [(event.step, event.data["kind"]) for event in events if event.type == "step.started"]
    place = steps.index((sealed.step, "compaction"))
    assert place == len(steps) - 2, "right before the answer that would have been told too much"

    [summarised] = asked(provider, sealed.step)
    assert OPENING in str(summarised["messages"])
    assert not summarised.get("tools")
    [after] = asked(provider, steps[-1][0])
    said = [str(message["content"]) for message in after["messages"] if message["role"] == "user"]
    sent = [each["text"] for each in data_of(events, "message.sent")]
    assert [said[0], *said[2:]] == [sent[0], *sent[-2:]], "pinned, and the newest"
    assert "<summary>\nWhat was said so far.\n</summary>" in said[1]
    assert len([message for message in after["messages"] if message["role"] == "assistant"]) == 1

    answers = data_of(events, "model.responded")
    assert len(answers) == len(sent), "the log has all of it"
    assert all(len(each["text"]) >= 3_000 for each in answers)
    used = [each["usage"] for each in (*answers, done)]
    budget = await Budgets(stage.parts.conversations, stage.parts.agents, stage.parts.clock).find(
        await stage.parts.conversations.get(conversation)
    )
    assert budget is not None
    counted = budget.to_json()["used"]["conversation"]
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert counted["tokens"] == sum(usage[kind] for usage in used for kind in kinds)
    assert counted["steps"] == len(steps)

    more = await say(stage, conversation, "short [[say So.]]")
    assert len(compactions(more)) == 1, "it is not done again"
    transcript = Transcript()
    for event in more:
        transcript.fold(event)
    [item] = [item for item in transcript.to_json()["items"] if item["kind"] == "compaction"]
    assert item["summary"] == "What was said so far."


async def test_a_fork_from_before_a_compaction_is_told_the_originals(stage: Stage, provider: PretendProvider) -> None:
    conversation = await forgetful(stage)
    events = await talk_until(stage, conversation, "compaction.finished")
    [sealed] = compactions(events)
    end = [event.seq for event in events if event.type == "turn.finished" and event.seq < sealed.seq][-1]
    parent = await stage.parts.conversations.get(conversation)
    fork = await stage.parts.conversations.fork(
        new_operation_id(), parent, end, actor=PERSON, agent="forgetful", model="openai:pretend-64k"
    )
    await stage.parts.agents.apply(
        AgentDefinition(name="forgetful", model="openai:pretend", instructions="Go on.", tools=()), by=PERSON
    )
    later = await stage.ended(fork.id, await stage.send(fork.id, "and? [[say Yes.]]"))
    assert compactions(later) == []
    [request] = asked(provider, [event.step for event in later if event.type == "step.started"][-1])
    assert "message 0" in str(request["messages"])


async def test_what_a_provider_finds_too_long_is_compacted_once_and_the_step_is_tried_again(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await forgetful(stage, "openai:pretend-8k", compaction={"keep": 3})
    events = await talk_until(stage, conversation, "compaction.finished")
    [request] = data_of(events, "compaction.requested")
    [sealed] = compactions(events)
    assert (request["reason"], sealed.data["outcome"]) == ("too_long", "compacted")
    starts = [event for event in events if event.type == "step.started" and event.step == request["step"]]
    assert [event.attempt for event in starts] == [1, 2]
    [retried] = data_of(events, "turn.recovered")
    assert "longer than the model of openai can read" in retried["reason"].lower() or "can read" in retried["reason"]
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"
    outcomes = [call.outcome for call in provider.calls if call.step == request["step"]]
    assert outcomes == ["refused", "answered"]


async def test_a_compaction_that_fails_loses_nothing_and_is_not_tried_again_at_once(
    stage: Stage, provider: PretendProvider
) -> None:
    provider.troubles.append(Trouble("error", times=1_000, status=400, message="no summaries here", match=OPENING))
    conversation = await forgetful(stage)
    events = await talk_until(stage, conversation, "compaction.finished")
    [sealed] = compactions(events)
    assert sealed.data["outcome"] == "failed"
    assert "no summaries here" in sealed.data["reason"]
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"
    more = await say(stage, conversation, "short [[say So.]]")
    assert len(compactions(more)) == 1
    assert data_of(more, "model.responded")[-1]["text"] == "So."


async def test_a_person_asks_for_it_while_a_turn_runs_and_while_none_does(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await forgetful(stage, compaction={"enabled": False})
    await say(stage, conversation, "one [[say 1.]]", f"two {LONG}", f"three {LONG} [[summary Until three.]]")
    turn = await stage.send(conversation, '[[slow 2]] [[say x]] [[tool read_file {"path": "a"}]] [[say Done.]]')
    await eventually(lambda: is_under_way(stage, conversation, turn), WITHIN_S)
    assert await compact(stage, conversation, keep=2) == turn
    assert await compact(stage, conversation, keep=1) == turn, "again: nothing changes"
    events = await stage.ended(conversation, turn)
    [sealed] = compactions(events)
    assert (sealed.turn, sealed.data["outcome"], sealed.data["summary"]) == (turn, "compacted", "Until three.")
    assert len(data_of(events, "compaction.requested")) == 1
    kinds = [event.data["kind"] for event in events if event.type == "step.started" and event.turn == turn]
    assert kinds == ["model", "tool", "compaction", "model"], "no call is parted from its result"
    assert data_of(events, "model.responded")[-1]["text"] == "Done."

    assert await compact(stage, conversation, keep=1) is None
    turn = await stage.send(conversation, "four [[say 4.]]")
    events = await stage.ended(conversation, turn)
    kinds = [event.data["kind"] for event in events if event.type == "step.started" and event.turn == turn]
    assert kinds == ["compaction", "model"]
    assert len(compactions(events)) == 2
    [told] = asked(provider, [event.step for event in events if event.type == "step.started"][-1])
    assert str(told["messages"]).count("<summary>") == 1


async def is_under_way(stage: Stage, conversation: ConversationId, turn: TurnId) -> bool:
    return any(event.type == "step.started" and event.turn == turn for event in await stage.events(conversation))


async def test_where_nothing_is_old_nothing_is_bought_and_it_is_said(stage: Stage, provider: PretendProvider) -> None:
    conversation = await forgetful(stage)
    await compact(stage, conversation)
    events = await say(stage, conversation, "one [[say 1.]]")
    [sealed] = compactions(events)
    assert (sealed.data["outcome"], sealed.data["reason"]) == ("nothing", "Nothing is older than what stays as it is.")
    assert asked(provider, sealed.step) == []
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]


async def test_an_interrupt_stops_a_compaction_and_what_was_bought_is_counted(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await forgetful(stage)
    slow = "x " * 1_000
    await say(stage, conversation, f"one {LONG}", f"two {LONG}", f"three {LONG} [[summary {slow}]]")
    await compact(stage, conversation, keep=1)
    turn = await stage.send(conversation, "four [[say 4.]]")
    await eventually(lambda: is_under_way(stage, conversation, turn), WITHIN_S)
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason=None)
    events = await stage.ended(conversation, turn)
    [sealed] = compactions(events)
    assert (sealed.data["outcome"], sealed.data["reason"]) == ("failed", "The turn was stopped meanwhile.")
    assert sealed.data["usage"]["input_tokens"] > 500
    assert data_of(events, "turn.finished")[-1]["outcome"] == "interrupted"
    later = await say(stage, conversation, "five [[say 5.]]")
    assert data_of(later, "model.responded")[-1]["text"] == "5."


async def test_messages_that_come_during_a_compaction_are_taken_after_it_in_their_order_or_never(
    stage: Stage, provider: PretendProvider
) -> None:
    """One of them hurries, one is withdrawn, and all others are told word for word."""
    conversations, steering = stage.parts.conversations, Steering(stage.parts.conversations, stage.loop)
    conversation = await forgetful(stage)
    await say(stage, conversation, f"one {LONG}", f"two {LONG}", f"three {LONG} [[summary {'x ' * 300}]]")
    await compact(stage, conversation, keep=1)
    turn = await stage.send(conversation, "four [[say 4.]]")
    await eventually(lambda: is_under_way(stage, conversation, turn), WITHIN_S)
    sent = [
        await conversations.send(new_operation_id(), conversation, actor=PERSON, text=text, is_hurried=is_hurried)
        for text, is_hurried in (("the zebra", False), ("the giraffe", False), ("the lion [[say 5.]]", True))
    ]
    await steering.withdraw(new_operation_id(), conversation, sent[1].message, actor=PERSON)
    order = [each.id for each in await steering.queue(conversation)]
    await steering.order(new_operation_id(), conversation, [order[-1], *order[:-1]], actor=PERSON)
    events = await stage.ended(conversation, turn)
    [sealed] = compactions(events)
    assert sealed.data["outcome"] == "compacted"
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"
    told = json.dumps([asked(provider, event.step) for event in events if event.type == "model.responded"][-1])
    assert "giraffe" not in json.dumps([asked(provider, event.step) for event in events])
    assert told.index("<summary>") < told.index("the lion") < told.index("the zebra")


async def test_a_compaction_asks_the_model_that_the_turn_asks(stage: Stage, provider: PretendProvider) -> None:
    conversation = await forgetful(stage)
    steering = Steering(stage.parts.conversations, stage.loop)
    await say(stage, conversation, f"one {LONG}", f"two {LONG}", f"three {LONG} [[summary Until three.]]")
    turn = await stage.send(conversation, '[[slow 2]] [[say x]] [[tool read_file {"path": "a"}]] [[say Done.]]')
    await eventually(lambda: is_under_way(stage, conversation, turn), WITHIN_S)
    operation = new_operation_id()
    await steering.change_model(operation, conversation, actor=PERSON, model="openai:another", scope="turn")
    await compact(stage, conversation, keep=1)
    events = await stage.ended(conversation, turn)
    [sealed] = compactions(events)
    assert (sealed.data["outcome"], sealed.data["model"]) == ("compacted", "openai:another")
    assert [each["model"] for each in asked(provider, sealed.step)] == ["another"]


async def test_a_provider_that_breaks_off_is_asked_again_for_the_summary(
    stage: Stage, provider: PretendProvider
) -> None:
    provider.troubles.append(Trouble("cut", times=1, after=1, match=OPENING))
    conversation = await forgetful(stage)
    events = await talk_until(stage, conversation, "compaction.finished")
    [sealed] = compactions(events)
    assert (sealed.attempt, sealed.data["outcome"]) == (2, "compacted")
    [recovered] = data_of(events, "turn.recovered")
    assert (recovered["step"], recovered["attempt"]) == (sealed.step, 2)
