"""A person stops a turn: at once, whatever it does, with a clean end in the log."""

import time
from functools import partial
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.loop.tools.workshop import machines_of
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at, types
from machine_rooms import open_machine_room
from outlive.base import ConversationId, EffectId, MachineId, TurnId
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

LONG = "[[pace 0.1]] [[big 3000]]"


async def _streaming(stage: Stage, provider: PretendProvider) -> tuple[ConversationId, TurnId]:
    conversation = await stage.converse()
    turn = await stage.send(conversation, LONG)
    await eventually(lambda: bool(provider.calls) and provider.calls[-1].pieces > 3, WITHIN_S)
    return conversation, turn


async def test_an_interrupt_in_mid_stream_ends_the_turn_with_what_was_said(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await _streaming(stage, provider)
    began = time.monotonic()
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason="enough")
    assert time.monotonic() - began < 20.0  # half a second where nothing else runs; the whole answer: a minute
    events = await stage.events(conversation)
    assert types(events)[-3:] == ["model.responded", "turn.interrupted", "turn.finished"]
    [answer] = data_of(events, "model.responded")
    assert answer["stop_reason"] == "interrupted"
    assert answer["text"].startswith("the quick brown fox")
    assert len(answer["text"]) < 3000
    assert data_of(events, "turn.finished") == [{"outcome": "interrupted", "reason": "enough"}]
    assert events[-1].actor == events[-2].actor == PERSON
    await eventually(lambda: provider.calls[-1].outcome == "left", WITHIN_S)
    assert (await stage.parts.conversations.get(conversation)).state == "idle"


async def test_interrupting_twice_or_too_late_changes_nothing(stage: Stage, provider: PretendProvider) -> None:
    conversation, turn = await _streaming(stage, provider)
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(_interrupt, stage, conversation, turn)
    events = await stage.events(conversation)
    assert types(events).count("turn.interrupted") == types(events).count("turn.finished") == 1
    await _interrupt(stage, conversation, turn)
    assert await stage.events(conversation) == events


async def _interrupt(stage: Stage, conversation: ConversationId, turn: TurnId) -> None:
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason=None)


async def test_a_message_after_an_interrupt_begins_a_turn_that_knows_what_was_said(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await _streaming(stage, provider)
    await _interrupt(stage, conversation, turn)
    events = await stage.ended(conversation, await stage.send(conversation, "[[say Fine.]]"))
    assert data_of(events, "model.responded")[-1]["text"] == "Fine."
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"


async def test_an_interrupt_of_an_older_turn_does_not_stop_the_one_that_runs(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, events = await stage.ask("first")
    [old] = {event.turn for event in events if event.type == "turn.finished"}
    assert old is not None
    turn = await stage.send(conversation, "[[pace 0.1]] [[say one two three four five six]]")
    await _interrupt(stage, conversation, old)
    assert data_of(await stage.ended(conversation, turn), "turn.finished")[-1]["outcome"] == "done"


async def test_a_turn_that_waits_for_its_next_try_is_stopped_too(stage: Stage, provider: PretendProvider) -> None:
    conversation = await stage.converse()
    turn = await stage.send(conversation, "[[error 429 retry-after=600 always]]")
    await eventually(lambda: stage.has(conversation, "turn.recovered"), WITHIN_S)
    await _interrupt(stage, conversation, turn)
    assert data_of(await stage.events(conversation), "turn.finished")[-1]["outcome"] == "interrupted"


async def test_a_message_that_came_after_an_interrupt_was_asked_for_has_a_turn_of_its_own(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, turn = await _streaming(stage, provider)
    await stage.record(conversation, "[[say This was stopped.]]")
    seen = (await stage.parts.conversations.get(conversation)).head
    assert await stage.record(conversation, "[[say This was not.]]") == turn
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason="enough", seen=seen)
    await eventually(lambda: stage.is_idle(conversation, turns=2), WITHIN_S)
    events = await stage.events(conversation)
    assert [each["outcome"] for each in data_of(events, "turn.finished")] == ["interrupted", "done"]
    assert data_of(events, "turn.interrupted") == [{"reason": "enough", "seen": seen}]
    assert data_of(events, "model.responded")[-1]["text"] == "This was not."


async def test_a_file_that_is_being_written_when_its_turn_is_stopped_is_told_as_unknown(
    temporal: str, provider: PretendProvider, tmp_path: Path
) -> None:
    script = '[[tool shell {"command": "mkfifo pipe"}]] [[tool write_file {"path": "pipe", "content": "late"}]]'
    async with (
        open_machine_room(tmp_path) as room,
        room.node() as node,
        stage_at(tmp_path / "home", temporal, partial(machines_of, room, node)) as stage,
    ):
        conversation = await stage.converse(environment="host")
        turn = await stage.send(conversation, script)

        async def is_writing() -> bool:
            requested = data_of(await stage.events(conversation), "tool.requested")
            machine = (await stage.parts.conversations.get(conversation)).machine
            if len(requested) < 2 or machine is None:
                return False
            return await room.records.effects.find(MachineId(machine), EffectId(requested[-1]["effect"])) is not None

        await eventually(is_writing, WITHIN_S)
        await _interrupt(stage, conversation, turn)
        events = await stage.events(conversation)
    last = data_of(events, "tool.finished")[-1]
    assert last["outcome"] == "lost"
    assert "unknown" in last["output"]
    assert data_of(events, "turn.finished") == [{"outcome": "interrupted", "reason": None}]
