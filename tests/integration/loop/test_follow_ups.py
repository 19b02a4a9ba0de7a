"""Messages that come while a turn runs: what the provider is told of them, and what is stopped for one that hurries."""

import json
from functools import partial
from pathlib import Path

import pytest

from eventually import eventually
from integration.loop.tools.workshop import machines_of
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at, types
from integration.loop.waits import careful, parked
from machine_rooms import open_machine_room
from outlive.base import ConversationId, MessageId, TurnId, derive, new_operation_id
from outlive.conversation.conversations import Sent
from outlive.loop.steering import Steering
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

TURN = "[[pace 0.1]] [[say one two three four five six]] [[tool list_files {}]] [[say Done.]]"


async def send(stage: Stage, conversation: ConversationId, text: str, *, is_hurried: bool = False) -> Sent:
    sent = await stage.parts.conversations.send(
        new_operation_id(), conversation, actor=PERSON, text=text, is_hurried=is_hurried
    )
    await stage.loop.submit(conversation, sent.turn)
    return sent


async def begun(stage: Stage, text: str = TURN) -> tuple[ConversationId, TurnId]:
    conversation = await stage.converse()
    turn = await stage.send(conversation, text)
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    return conversation, turn


def asked(provider: PretendProvider, number: int) -> str:
    """What the provider got in its call of that place, from 0."""
    request = provider.ledger.request(provider.calls[number].number)
    assert request is not None
    return request.decode()


async def test_a_message_that_was_withdrawn_never_reaches_the_provider(stage: Stage, provider: PretendProvider) -> None:
    steering = Steering(stage.parts.conversations, stage.loop)
    conversation, turn = await begun(stage)
    kept = await send(stage, conversation, "keep zebra")
    gone = await send(stage, conversation, "forget giraffe")
    queue = await steering.withdraw(new_operation_id(), conversation, gone.message, actor=PERSON)
    assert [each.id for each in queue] == [kept.message]
    events = await stage.ended(conversation, turn)
    requests = [asked(provider, number) for number in range(len(provider.calls))]
    assert "zebra" in requests[-1]
    assert not any("giraffe" in each for each in requests)
    assert types(events).count("message.withdrawn") == 1
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]


async def test_a_turn_that_has_nothing_left_to_answer_ends(stage: Stage, provider: PretendProvider) -> None:
    steering = Steering(stage.parts.conversations, stage.loop)
    conversation, turn = await begun(stage, "[[pace 0.2]] [[say one two three four five six]]")
    gone = await send(stage, conversation, "forget giraffe")
    await steering.withdraw(new_operation_id(), conversation, gone.message, actor=PERSON)
    events = await stage.ended(conversation, turn)
    assert len(data_of(events, "model.responded")) == len(provider.calls) == 1


async def test_a_turn_that_waits_ends_when_what_it_was_to_answer_is_withdrawn(stage: Stage) -> None:
    """The loop is told of nothing but the withdrawal: what it was told before it would look at when it rests."""
    conversations = stage.parts.conversations
    conversation, turn = await begun(stage, "[[pace 0.1]] [[say one two three four five six]]")
    gone = await conversations.send(new_operation_id(), conversation, actor=PERSON, text="forget giraffe")
    await Steering(conversations, None).pause(new_operation_id(), conversation, actor=PERSON, reason=None)
    await eventually(lambda: stage.has(conversation, "turn.parked"), WITHIN_S)

    async def rests() -> bool:
        described = await stage.client.get_workflow_handle(conversation).describe()
        return not described.raw_description.pending_activities

    await eventually(rests, WITHIN_S)
    steering = Steering(conversations, stage.loop)
    await steering.withdraw(new_operation_id(), conversation, gone.message, actor=PERSON)
    events = await stage.ended(conversation, turn, 20.0)
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]


async def test_an_order_is_what_the_model_sees(stage: Stage, provider: PretendProvider) -> None:
    steering = Steering(stage.parts.conversations, stage.loop)
    conversation, turn = await begun(stage)
    sent = [await send(stage, conversation, text) for text in ("the zebra", "the giraffe", "the lion")]
    order: list[MessageId] = [sent[2].message, sent[0].message, sent[1].message]
    await steering.order(new_operation_id(), conversation, order, actor=PERSON)
    await stage.ended(conversation, turn)
    last = asked(provider, -1)
    assert last.index("the lion") < last.index("the zebra") < last.index("the giraffe")


async def test_a_message_that_hurries_stops_the_answer_and_the_same_turn_goes_on(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await begun(stage, "[[pace 0.1]] [[big 3000]]")
    await eventually(lambda: bool(provider.calls) and provider.calls[-1].pieces > 3, WITHIN_S)
    sent = await send(stage, conversation, "[[say I stopped.]]", is_hurried=True)
    assert sent.turn == turn
    events = await stage.ended(conversation, turn)
    cut, whole = data_of(events, "model.responded")
    assert (cut["stop_reason"], whole["text"]) == ("interrupted", "I stopped.")
    assert 0 < len(cut["text"]) < 3000
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert {event.turn for event in events if event.turn is not None} == {turn}
    assert types(events).count("turn.interrupted") == 0
    await eventually(lambda: provider.calls[0].outcome == "left", WITHIN_S)


async def test_a_message_that_hurries_before_anything_was_said_is_in_the_next_attempt(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await begun(stage, "[[slow 60]] [[say Too late.]]")
    await eventually(lambda: bool(provider.calls), WITHIN_S)
    await send(stage, conversation, "[[say At once.]]", is_hurried=True)
    events = await stage.ended(conversation, turn)
    assert [each["text"] for each in data_of(events, "model.responded")] == ["At once."]


async def test_a_message_that_hurries_ends_the_command_and_leaves_what_had_not_begun(
    temporal: str, provider: PretendProvider, tmp_path: Path
) -> None:
    command = json.dumps({"command": "echo begun; sleep 300"})
    script = f'[[tool shell {command}]] [[also tool shell {{"command": "touch never"}}]] [[say Done.]]'
    async with (
        open_machine_room(tmp_path) as room,
        room.node() as node,
        stage_at(tmp_path / "home", temporal, partial(machines_of, room, node)) as stage,
    ):
        conversation = await stage.converse(environment="host")
        turn = await stage.send(conversation, script)
        await eventually(lambda: stage.has(conversation, "tool.requested", "machine.attached"), WITHIN_S)
        await send(stage, conversation, '[[tool shell {"command": "ls never"}]] [[quote 200]]', is_hurried=True)
        events = await stage.ended(conversation, turn)
    stopped, looked = data_of(events, "tool.finished")
    assert stopped["outcome"] in ("failed", "lost")
    assert "interrupted" in stopped["output"]
    assert "No such file" in looked["output"]
    assert [each["arguments"]["command"] for each in data_of(events, "tool.requested")][1:] == ["ls never"]
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert {event.turn for event in events if event.type == "turn.finished"} == {turn}
    assert "read at once" in asked(provider, 1)


async def test_nobody_is_asked_any_more_about_a_call_that_a_message_came_before(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await careful(stage, approve=["shell"])
    turn = await stage.send(conversation, '[[tool shell {"command": "true"}]] [[say Done.]]')
    [approval] = await parked(stage, conversation)
    await send(stage, conversation, "[[say Something else, then.]]", is_hurried=True)
    events = await stage.ended(conversation, turn)
    assert (await stage.parts.approvals.get(approval.id)).state == "expired"
    assert data_of(events, "tool.requested") == []
    assert data_of(events, "model.responded")[-1]["text"] == "Something else, then."
    assert derive("turn", turn, 1) not in {event.turn for event in events}
