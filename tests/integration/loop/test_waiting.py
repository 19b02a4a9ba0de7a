"""Turns that wait: for a person, for the time. Nothing of them runs meanwhile, and they go on when the log says so."""

from pathlib import Path

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at, temporal_at, types
from integration.loop.waits import careful, decide, parked
from outlive.base import new_message_id
from outlive.conversation.events import MachineWoken, NewEvent
from outlive.conversation.log import Append
from outlive.loop.sweeper import TurnSweeper
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

READ = '[[tool read_file {"path": "a.txt"}]]'


def sweeper_of(stage: Stage) -> TurnSweeper:
    return TurnSweeper(stage.parts.catalog, stage.loop, stage.parts.clock, settle_s=0.0)


async def test_what_needs_approval_waits_with_nothing_running_and_is_done_when_a_person_approves(stage: Stage) -> None:
    conversation = await careful(stage, approve=["read_file"])
    turn = await stage.send(conversation, f"{READ} [[say Done.]]")
    [asked] = await parked(stage, conversation)
    assert (asked.tool, asked.arguments, asked.turn) == ("read_file", {"path": "a.txt"}, turn)
    assert "tool.requested" not in types(await stage.events(conversation)), "nothing was begun"
    await decide(stage, asked, "approve")
    events = await stage.ended(conversation, turn)
    happened = [type for type in types(events) if type.split(".")[0] in ("approval", "tool", "turn")]
    assert happened == [
        *("turn.started", "approval.requested", "turn.parked", "approval.decided"),
        *("tool.requested", "tool.finished", "turn.finished"),
    ]
    [decided] = [event for event in events if event.type == "approval.decided"]
    assert decided.actor == PERSON
    [requested] = data_of(events, "tool.requested")
    assert (requested["effect"], requested["arguments"]) == (asked.effect, asked.arguments)
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert data_of(events, "turn.recovered") == []


async def test_of_the_calls_of_one_answer_each_is_decided_by_itself(stage: Stage) -> None:
    conversation = await careful(stage, approve=["read_file", "shell"])
    two_more = '[[also tool search {"pattern": "b"}]] [[also tool shell {"command": "c"}]]'
    turn = await stage.send(conversation, f"{READ} {two_more} [[quote 500]]")
    first, second = await parked(stage, conversation)
    assert [first.tool, second.tool] == ["read_file", "shell"], "all are asked for at once"
    requested = data_of(await stage.events(conversation), "tool.requested")
    assert [each["name"] for each in requested] == ["search"], "who needs nobody does not wait"
    await decide(stage, first, "deny", "It is a secret.")
    await parked(stage, conversation)
    await decide(stage, second, "approve", "Go on.")
    events = await stage.ended(conversation, turn)
    outcomes = {each["call"]: each for each in data_of(events, "tool.finished")}
    calls = {each["name"]: each["id"] for each in data_of(events, "model.responded")[0]["tool_calls"]}
    denied, done = outcomes[calls["read_file"]], outcomes[calls["shell"]]
    assert (denied["outcome"], denied["output"]) == ("rejected", "A person denied it: It is a secret.")
    assert "Go on." in done["output"]
    assert "It is a secret." in data_of(events, "model.responded")[-1]["text"], "the model was told"


async def test_a_question_is_answered_by_the_comment_or_by_a_message(stage: Stage) -> None:
    ask = '[[tool ask_human {"question": "Which port?", "proposal": "8080"}]] [[quote 100]]'
    conversation = await careful(stage)
    turn = await stage.send(conversation, ask)
    [asked] = await parked(stage, conversation)
    assert (asked.question, asked.proposal, asked.tool, asked.digest) == ("Which port?", "8080", None, None)
    await decide(stage, asked, "approve", "9090")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "model.responded")[-1]["text"] == "9090"

    other = await careful(stage)
    turn = await stage.send(other, ask)
    [asked] = await parked(stage, other)
    assert await stage.send(other, "[[say I see.]]") == turn
    events = await stage.ended(other, turn)
    assert data_of(events, "approval.decided")[0]["decision"] == "expired"
    assert "a message came" in data_of(events, "tool.finished")[0]["output"]
    assert data_of(events, "model.responded")[-1]["text"] == "I see."
    assert (await stage.parts.approvals.get(asked.id)).state == "expired"


async def test_a_wait_ends_with_its_time_with_a_message_or_with_the_turn(stage: Stage) -> None:
    conversation = await careful(stage)
    turn = await stage.send(conversation, '[[tool wait {"seconds": 1}]] [[say On.]]')
    events = await stage.ended(conversation, turn)
    [waited] = data_of(events, "tool.finished")
    assert (waited["outcome"], waited["output"].split()[0], waited["output"][-2:]) == ("finished", "Waited", "s.")

    turn = await stage.send(conversation, '[[tool wait {"seconds": 86400}]] [[say On.]]')
    await parked(stage, conversation)
    await stage.send(conversation, "[[say Here.]]")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "tool.finished")[-1]["output"].endswith("then a message came.")

    turn = await stage.send(conversation, '[[tool wait {"until": "2999-01-01T00:00:00Z"}]] [[say On.]]')
    await parked(stage, conversation)
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason="enough")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "turn.finished")[-1] == {"outcome": "interrupted", "reason": "enough"}


async def test_an_approval_that_nobody_decides_ends_the_turn_and_nothing_was_done(stage: Stage) -> None:
    conversation = await careful(stage, approve=["read_file"], approve_expires_s=2)
    turn = await stage.send(conversation, f"{READ} [[say Done.]]")
    events = await stage.ended(conversation, turn)
    [decided] = [event for event in events if event.type == "approval.decided"]
    assert (decided.data["decision"], decided.actor) == ("expired", "loop")
    assert data_of(events, "turn.finished") == [{"outcome": "waiting_expired", "reason": "Nobody answered in time."}]
    assert data_of(events, "tool.requested") == []
    [expired] = await stage.parts.approvals.list(limit=10)
    assert expired.state == "expired"
    again = await stage.send(conversation, "[[say What now?]]")
    assert data_of(await stage.ended(conversation, again), "turn.finished")[-1]["outcome"] == "done"


async def test_a_decision_whose_word_was_lost_is_told_whatever_was_written_after_it(stage: Stage) -> None:
    conversation = await careful(stage, approve=["read_file"])
    turn = await stage.send(conversation, f"{READ} [[say Done.]]")
    [asked] = await parked(stage, conversation)
    await decide(stage, asked, "approve", is_told=False)
    at = "2020-01-02T03:04:05.000006Z"  # long ago: who wrote it had time to tell
    woken = Append(conversation, (NewEvent(MachineWoken(machine="mach_1"), at),), new_message_id(), "mach_1", turn)
    await stage.parts.conversations.append(woken)
    assert await stage.loop.is_running(conversation)
    assert await sweeper_of(stage).sweep() == 0, "it runs: it is not begun again"
    events = await stage.ended(conversation, turn)
    assert data_of(events, "turn.recovered") == []
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]


async def test_a_message_to_a_turn_that_waits_is_heard_though_nobody_told_the_loop(stage: Stage) -> None:
    conversation = await careful(stage)
    turn = await stage.send(conversation, '[[tool wait {"seconds": 86400}]] [[say On.]]')
    await parked(stage, conversation)
    sweeper = sweeper_of(stage)
    await sweeper.sweep()
    assert await stage.record(conversation, "[[say Here.]]") == turn
    await sweeper.sweep()
    await stage.ended(conversation, turn)


async def test_a_turn_goes_on_waiting_after_temporals_database_was_lost(
    provider: PretendProvider, temporal: str, tmp_path: Path
) -> None:
    with temporal_at(tmp_path / "doomed") as doomed:
        async with stage_at(tmp_path / "home", doomed) as stage:
            conversation = await careful(stage, approve=["read_file"])
            turn = await stage.send(conversation, f"{READ} [[say Done.]]")
            [asked] = await parked(stage, conversation)
    async with stage_at(tmp_path / "home", temporal) as stage:
        assert not await stage.loop.is_running(conversation)
        assert await sweeper_of(stage).sweep() == 1
        await eventually(lambda: stage.has(conversation, "turn.recovered"), WITHIN_S)
        assert await parked(stage, conversation) == [asked]
        await decide(stage, asked, "approve")
        events = await stage.ended(conversation, turn)
    assert [each["what"] for each in data_of(events, "turn.recovered")] == ["restarted"]
    assert types(events).count("approval.requested") == 1
    assert types(events).count("tool.requested") == 1
