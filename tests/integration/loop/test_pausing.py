"""A person lets a turn wait, and lets it go on."""

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, types
from integration.loop.waits import parked
from outlive.base import ConflictError, new_operation_id
from outlive.loop.steering import Steering
from outlive.loop.sweeper import TurnSweeper

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{n}" for n in range(60))  # whoever wants to pause it has seconds for it
TURN = f"[[pace 0.1]] [[say {LONG}]] [[tool list_files {{}}]] [[say Done.]]"


async def test_a_paused_turn_finishes_what_has_begun_and_goes_on_where_it_was(stage: Stage) -> None:
    steering = Steering(stage.parts.conversations, stage.loop)
    conversation = await stage.converse()
    with pytest.raises(ConflictError):
        await steering.pause(new_operation_id(), conversation, actor=PERSON, reason=None)
    turn = await stage.send(conversation, TURN)
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    operation = new_operation_id()
    await steering.pause(operation, conversation, actor=PERSON, reason="let me look")
    await steering.pause(new_operation_id(), conversation, actor=PERSON, reason="me too")
    assert await parked(stage, conversation) == []
    events = await stage.events(conversation)
    assert data_of(events, "model.responded")[0]["text"] == LONG
    assert data_of(events, "tool.requested") == []
    assert data_of(events, "turn.paused") == [{"reason": "let me look"}]
    assert await stage.send(conversation, "[[say Hurry.]]") == turn
    await parked(stage, conversation)
    assert len(data_of(await stage.events(conversation), "model.responded")) == 1, "a message does not resume it"
    await steering.resume(new_operation_id(), conversation, actor=PERSON)
    events = await stage.ended(conversation, turn)
    assert types(events).count("turn.resumed") == 1
    await steering.pause(operation, conversation, actor=PERSON, reason="let me look")  # asked again after a crash
    assert await stage.events(conversation) == events
    assert len(data_of(events, "tool.finished")) == 1
    assert data_of(events, "model.responded")[-1]["text"] == "Hurry."
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert data_of(events, "turn.recovered") == []


async def test_a_resume_whose_word_was_lost_is_heard(stage: Stage) -> None:
    steering = Steering(stage.parts.conversations, None)  # whose word is lost each time
    conversation = await stage.converse()
    turn = await stage.send(conversation, TURN)
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    await steering.pause(new_operation_id(), conversation, actor=PERSON, reason=None)
    await parked(stage, conversation)
    await stage.send(conversation, "well?")  # what was submitted has been looked at: from here on it waits for a word
    await parked(stage, conversation)
    await steering.resume(new_operation_id(), conversation, actor=PERSON)
    sweeper = TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=0.0)
    assert await sweeper.sweep() == 0
    await stage.ended(conversation, turn)


async def test_a_paused_turn_is_interrupted_at_once(stage: Stage) -> None:
    steering = Steering(stage.parts.conversations, stage.loop)
    conversation = await stage.converse()
    turn = await stage.send(conversation, TURN)
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    await steering.pause(new_operation_id(), conversation, actor=PERSON, reason=None)
    await parked(stage, conversation)
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason=None)
    assert data_of(await stage.ended(conversation, turn), "turn.finished")[0]["outcome"] == "interrupted"
