"""A turn from message to end, on a real Temporal, through the official SDKs."""

import base64
from collections.abc import Awaitable
from functools import partial

import pytest
from temporalio.api.enums.v1 import EventType

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, types
from outlive.base import ConversationId, TurnId
from outlive.conversation.events import Event
from outlive.loop.fold import step_id
from outlive.loop.sweeper import TurnSweeper
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio


async def test_a_message_gets_an_answer(stage: Stage, provider: PretendProvider) -> None:
    conversation, events = await stage.ask("[[say Hello there.]]")
    assert types(events) == [
        "conversation.created",
        "message.sent",
        "turn.started",
        "step.started",
        "model.responded",
        "turn.finished",
    ]
    [answer] = data_of(events, "model.responded")
    assert (answer["text"], answer["stop_reason"]) == ("Hello there.", "end_turn")
    assert answer["usage"]["input_tokens"] > 0
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert (await stage.parts.conversations.get(conversation)).state == "idle"
    assert [call.outcome for call in provider.calls] == ["answered"]


async def test_a_follow_up_in_mid_stream_joins_the_turn_and_is_answered_in_its_next_step(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await stage.converse()
    turn = await stage.send(conversation, "[[pace 0.1]] [[say one two three four five six seven eight]]")
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    assert await stage.send(conversation, "[[say And to you.]]") == turn
    events = await stage.ended(conversation, turn)
    answers = data_of(events, "model.responded")
    assert [answer["text"] for answer in answers] == ["one two three four five six seven eight", "And to you."]
    assert types(events).count("turn.finished") == 1


async def test_a_second_message_after_the_end_begins_a_new_turn(stage: Stage) -> None:
    conversation, _ = await stage.ask("first")
    second = await stage.send(conversation, "second")
    events = await stage.ended(conversation, second)
    assert [answer["text"] for answer in data_of(events, "model.responded")] == ["You said: first", "You said: second"]
    assert types(events).count("turn.started") == 2


async def test_no_message_falls_between_two_turns(stage: Stage, provider: PretendProvider) -> None:
    """Each message comes at another moment of the turn before it: at once, in its step, around its end."""
    conversation = await stage.converse()
    moments = ["message.sent", "step.started", "model.responded", "turn.finished", "turn.finished"]
    for number in range(50):
        turn = await stage.send(conversation, f"message {number}")
        await eventually(partial(_has_come, stage, conversation, turn, moments[number % len(moments)]), WITHIN_S)
    await stage.ended(conversation, await stage.send(conversation, "last"))
    events = await stage.events(conversation)
    open_turn = (await stage.parts.conversations.get(conversation)).turn
    assert open_turn is None
    finished = [event.turn for event in events if event.type == "turn.finished"]
    assert len(finished) == len(set(finished))
    assert {event.turn for event in events if event.type == "message.sent"} == set(finished)
    assert data_of(events, "turn.recovered") == []
    _assert_every_message_was_seen(events)


async def _has_come(stage: Stage, conversation: ConversationId, turn: TurnId, type: str) -> bool:
    return any(event.type == type and event.turn == turn for event in await stage.events(conversation))


def _assert_every_message_was_seen(events: list[Event]) -> None:
    """Behind every message begins a model step of its turn that is sealed."""
    sealed = {event.step for event in events if event.type == "model.responded"}
    for message in events:
        if message.type == "message.sent":
            assert any(
                event.type == "step.started" and event.turn == message.turn and event.step in sealed
                for event in events[message.seq :]
            ), message


async def test_tools_are_requested_before_they_run_and_their_results_are_told(stage: Stage) -> None:
    """Without machines they are rejected; the model is told and goes on."""
    _, events = await stage.ask('[[tool shell {"command": "ls"}]] [[also tool search {"pattern": "x"}]] [[quote 40]]')
    kinds = [event.data["kind"] for event in events if event.type == "step.started"]
    assert kinds == ["model", "tool", "tool", "model"]
    requested, finished = data_of(events, "tool.requested"), data_of(events, "tool.finished")
    assert [each["effect"] for each in requested] == [each["effect"] for each in finished]
    assert {each["outcome"] for each in finished} == {"rejected"}
    assert data_of(events, "model.responded")[-1]["text"].startswith("This call was rejected and not run.")


async def test_a_step_that_is_sealed_is_never_bought_again(stage: Stage, provider: PretendProvider) -> None:
    conversation, events = await stage.ask('[[tool shell {"command": "ls"}]] [[say Done.]]')
    [turn] = {event.turn for event in events if event.type == "turn.started"}
    assert turn is not None
    asked = len(provider.calls)
    answered = [event for event in events if event.type == "model.responded"]
    # What a worker that died right after the seal would be asked again.
    for n, event in zip((1, 3), answered, strict=True):
        assert event.step == step_id(turn, n)
    assert [call.step for call in provider.calls] == [event.step for event in answered]
    await stage.loop.submit(conversation)
    await eventually(lambda: _not(stage.loop.is_running(conversation)), WITHIN_S)
    assert len(provider.calls) == asked
    assert await stage.events(conversation) == events


async def _not(claim: Awaitable[bool]) -> bool:
    return not await claim


async def test_a_turn_ends_in_the_log_with_its_last_answer_and_not_when_its_workflow_does(stage: Stage) -> None:
    conversation, _ = await stage.ask("[[tool nothing {}]] [[say Done.]]")
    await eventually(lambda: _not(stage.loop.is_running(conversation)), WITHIN_S)
    history = await stage.client.get_workflow_handle(conversation).fetch_history()
    kinds = [event.event_type for event in history.events]
    assert kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 3
    assert kinds.count(EventType.EVENT_TYPE_MARKER_RECORDED) == 1, "it looked once, and nobody had to end the turn"


async def test_the_first_answer_is_asked_for_before_anything_else(stage: Stage) -> None:
    conversation, events = await stage.ask("Hello.")
    await eventually(lambda: _not(stage.loop.is_running(conversation)), WITHIN_S)
    history = await stage.client.get_workflow_handle(conversation).fetch_history()
    kinds = [event.event_type for event in history.events]
    look = kinds.index(EventType.EVENT_TYPE_MARKER_RECORDED)
    assert kinds.index(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) < look
    assert types(events).count("turn.started") == 1


async def test_a_run_that_is_told_of_a_turn_that_is_over_changes_nothing(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, events = await stage.ask("Hello.")
    await eventually(lambda: _not(stage.loop.is_running(conversation)), WITHIN_S)
    asked = len(provider.calls)
    [turn] = {event.turn for event in events if event.type == "turn.started"}
    await stage.loop.submit(conversation, turn)
    await eventually(lambda: _not(stage.loop.is_running(conversation)), WITHIN_S)
    assert len(provider.calls) == asked
    assert await stage.events(conversation) == events


async def test_only_references_pass_through_temporal(stage: Stage) -> None:
    secret = "the quick brown secret"
    conversation, _ = await stage.ask(f'[[tool shell {{"command": "echo {secret}"}}]] [[say I heard: {secret}]]')
    history = await stage.client.get_workflow_handle(conversation).fetch_history()
    assert secret not in history.to_json()
    assert base64.b64encode(secret.encode())[:16].decode() not in history.to_json()
    assert len(history.to_json()) < 60_000


async def test_of_what_goes_wrong_only_codes_and_numbers_pass_through_temporal(
    stage: Stage, provider: PretendProvider
) -> None:
    word = "marmalade"
    mended, events = await stage.ask(f"[[error 529 retry-after-ms=50 message={word}]] [[say Fine.]]")
    assert word in data_of(events, "turn.recovered")[0]["reason"]
    failed, events = await stage.ask(f"[[error 400 always message={word}]]")
    assert word in data_of(events, "turn.finished")[0]["reason"]
    stopped = await stage.converse()
    turn = await stage.send(stopped, "[[pace 0.1]] [[big 3000]]")
    await eventually(lambda: provider.calls[-1].pieces > 3, WITHIN_S)
    await stage.loop.interrupt(stopped, turn, by=PERSON, reason=word)
    assert data_of(await stage.events(stopped), "turn.finished")[0]["reason"] == word
    for conversation in (mended, failed, stopped):
        history = await stage.client.get_workflow_handle(conversation).fetch_history()
        kept = b"".join(event.SerializeToString() for event in history.events)
        assert conversation.encode() in kept
        assert word.encode() not in kept


async def test_an_agent_that_is_not_there_ends_the_turn_with_that_as_its_reason(stage: Stage) -> None:
    conversation = await stage.converse(agent="nobody")
    events = await stage.ended(conversation, await stage.send(conversation, "hello"))
    [finished] = data_of(events, "turn.finished")
    assert finished["outcome"] == "failed"
    assert "nobody" in finished["reason"]
    assert (await stage.parts.conversations.get(conversation)).state == "failed"


async def test_a_turn_that_was_never_told_to_the_loop_is_begun_by_the_sweeper(stage: Stage) -> None:
    conversation = await stage.converse()
    turn = await stage.record(conversation, "hello")
    sweeper = TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=0.0)
    assert await sweeper.sweep() == 1
    events = await stage.ended(conversation, turn)
    [recovered] = data_of(events, "turn.recovered")
    assert recovered["what"] == "restarted"
    assert await sweeper.sweep() == 0


async def test_the_sweeper_leaves_alone_what_was_written_just_now_and_what_runs(stage: Stage) -> None:
    conversation, other = await stage.converse(), await stage.converse()
    await stage.record(other, "hello")
    turn = await stage.send(conversation, "[[pace 0.1]] [[say one two three four five six seven]]")
    lenient = TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=30.0)
    assert await lenient.sweep() == 0
    assert data_of(await stage.ended(conversation, turn), "turn.recovered") == []
