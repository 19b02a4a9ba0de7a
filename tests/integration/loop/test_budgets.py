"""Turns with a budget: they stop before it is passed, ask, wait at no cost, and go on when it is raised."""

import json
from typing import Any

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, types
from integration.loop.waits import parked
from outlive.base import ConversationId, InvalidError, TurnId, new_operation_id
from outlive.conversation.approvals import Approval
from outlive.conversation.events import BudgetRaised, Event
from outlive.loop.agents import AgentDefinition
from outlive.loop.budgets.raising import Budgets
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

PRICED = "openai:gpt-4.1"
READ = '[[tool read_file {"path": "a.txt"}]]'


async def thrifty(stage: Stage, model: str = PRICED, expires_s: float | None = None, **budget: Any) -> ConversationId:
    """A conversation with an agent that has this budget."""
    definition = AgentDefinition(
        name="thrifty",
        model=model,
        instructions="Spend little.",
        tools=("read_file",),
        budget=budget,
        policy={"approve_expires_s": expires_s} if expires_s is not None else None,
    )
    await stage.parts.agents.apply(definition, by=PERSON)
    return await stage.converse(agent="thrifty")


async def approve(stage: Stage, asked: Approval, amount: float | None = None) -> None:
    await stage.parts.approvals.decide(
        new_operation_id(), asked.id, "approve", actor=PERSON, comment=None, amount=amount
    )
    await stage.loop.submit(asked.conversation)


def budgets_of(stage: Stage) -> Budgets:
    return Budgets(stage.parts.conversations, stage.parts.agents, stage.parts.clock)


async def give(stage: Stage, conversation: ConversationId, **given: Any) -> None:
    operation = new_operation_id()
    for _ in range(2):  # whoever asks again gives nothing more
        await budgets_of(stage).give(operation, conversation, BudgetRaised(**given), PERSON)
    await stage.loop.submit(conversation)


def said_of_budget(events: list[Event]) -> list[str]:
    return [type for type in types(events) if type.split(".")[0] in ("approval", "budget", "turn")]


async def test_a_turn_asks_before_its_limit_is_passed_and_goes_on_when_it_is_raised(stage: Stage) -> None:
    conversation = await thrifty(stage, turn={"steps": 2})
    turn = await stage.send(conversation, f"{READ} [[say Done.]]")
    [asked] = await parked(stage, conversation)
    assert asked.question.startswith("Out of budget: this turn has used 2 of 2 steps")
    assert asked.budget == {"scope": "turn", "limit": "steps", "amount": 2.0}
    assert (asked.tool, asked.digest) == (None, None)
    assert types(await stage.events(conversation)).count("step.started") == 2, "nothing was begun beyond it"
    await approve(stage, asked)
    events = await stage.ended(conversation, turn)
    assert said_of_budget(events) == [
        *("turn.started", "approval.requested", "turn.parked", "approval.decided", "budget.raised", "turn.finished")
    ]
    [raised] = data_of(events, "budget.raised")
    assert (raised["scope"], raised["steps"], raised["approval"]) == ("turn", 2, asked.id)
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"
    assert data_of(events, "turn.recovered") == []


async def test_calls_at_the_same_time_do_not_pass_the_limit_of_steps(stage: Stage) -> None:
    conversation = await thrifty(stage, turn={"steps": 3})
    also = '[[also tool read_file {"path": "b.txt"}]] [[also tool read_file {"path": "c.txt"}]]'
    turn = await stage.send(conversation, f"{READ} {also} [[say Done.]]")
    [asked] = await parked(stage, conversation)
    assert types(await stage.events(conversation)).count("step.started") == 3
    await approve(stage, asked, amount=1)
    [again] = await parked(stage, conversation)
    assert again.id != asked.id
    assert types(await stage.events(conversation)).count("step.started") == 4
    await approve(stage, again, amount=10)
    events = await stage.ended(conversation, turn)
    assert len(data_of(events, "tool.finished")) == 3
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"


async def test_answers_get_shorter_as_money_goes_and_a_person_is_asked_when_none_fits(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await thrifty(stage, turn={"usd": 1.0}, conversation={"usd": 0.01, "tokens": 1_000_000})
    turns: list[TurnId] = []
    while not turns or (events := await ended_or_parked(stage, conversation, turns[-1]))[-1].type == "turn.finished":
        turns.append(await stage.send(conversation, "[[big 1000]]"))
    bought = [each["usage"]["cost_usd"] for each in data_of(events, "model.responded")]
    assert len(bought) == len(turns) - 1 >= 2
    assert 0 < sum(bought) <= 0.01
    asked_for = [json.loads(provider.ledger.request(call.number) or b"{}") for call in provider.calls]
    allowed = [each["max_tokens"] for each in asked_for]
    assert allowed == sorted(allowed, reverse=True)
    assert 256 <= min(allowed) < max(allowed) < 1250

    [asked] = await parked(stage, conversation)
    assert asked.question.startswith("Out of budget: this conversation has used $0.0")
    await stage.send(conversation, "Hello?")
    await give(stage, conversation, scope="turn", usd=5.0)
    await give(stage, conversation, scope="conversation", tokens=5)
    [same] = await parked(stage, conversation)
    assert same.id == asked.id, "neither a message nor more of something else raises what was hit"
    await give(stage, conversation, scope="conversation", usd=1.0)
    events = await stage.ended(conversation, turns[-1])
    assert (await stage.parts.approvals.get(asked.id)).state == "approved"
    assert [each["usd"] for each in data_of(events, "budget.raised")] == [5.0, 0.0, 1.0]
    assert data_of(events, "turn.finished")[-1]["outcome"] == "done"
    found = await budgets_of(stage).find(await stage.parts.conversations.get(conversation))
    assert found is not None
    shown = found.to_json()
    assert shown["limits"] == {"turn": {"usd": 1.0}, "conversation": {"usd": 1.01, "tokens": 1_000_005}}
    assert shown["used"]["conversation"]["steps"] == len(turns)


async def ended_or_parked(stage: Stage, conversation: ConversationId, turn: TurnId) -> list[Event]:
    async def is_so() -> bool:
        last = (await stage.events(conversation))[-1]
        return last.turn == turn and last.type in ("turn.finished", "turn.parked")

    await eventually(is_so, WITHIN_S)
    return await stage.events(conversation)


async def test_a_turn_whose_budget_nobody_raises_ends_out_of_budget(stage: Stage) -> None:
    conversation = await thrifty(stage, expires_s=2, turn={"tokens": 10})
    turn = await stage.send(conversation, "[[say Done.]]")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "turn.finished") == [
        {"outcome": "out_of_budget", "reason": "The budget is used up, and nobody raised it in time."}
    ]
    assert data_of(events, "model.responded") == []
    assert [each.state for each in await stage.parts.approvals.list(limit=10)] == ["expired"]

    other = await thrifty(stage, turn={"tokens": 10})
    turn = await stage.send(other, "[[say Done.]]")
    [asked] = await parked(stage, other)
    await stage.parts.approvals.decide(new_operation_id(), asked.id, "deny", actor=PERSON, comment=None)
    await stage.loop.submit(other)
    events = await stage.ended(other, turn)
    assert data_of(events, "turn.finished")[0]["reason"] == "The budget is used up, and a person did not raise it."


async def test_a_price_that_nobody_knows_is_refused_and_never_free(stage: Stage) -> None:
    with pytest.raises(InvalidError, match="nobody knows the price of 'openai:pretend'"):
        await thrifty(stage, "openai:pretend", turn={"usd": 5})
    conversation = await thrifty(stage, turn={"usd": 5})
    turn = await stage.send(conversation, "[[say Done.]]", model="openai:pretend")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "turn.finished")[0]["outcome"] == "failed"
    assert "nobody knows the price of 'openai:pretend'" in data_of(events, "turn.finished")[0]["reason"]
    assert data_of(events, "model.responded") == []


async def test_what_was_said_before_an_interrupt_is_counted(stage: Stage) -> None:
    conversation = await thrifty(stage, turn={"tokens": 100_000})
    turn = await stage.send(conversation, "[[pace 0.2]] [[big 100000]]")

    async def has_begun() -> bool:
        return await stage.has(conversation, "step.started")

    await eventually(has_begun, WITHIN_S)
    await stage.loop.interrupt(conversation, turn, by=PERSON, reason=None)
    events = await stage.ended(conversation, turn)
    for answer in data_of(events, "model.responded"):  # none, if nothing had come yet
        assert answer["usage"]["estimated"]
        assert answer["usage"]["input_tokens"] > 100
        assert answer["usage"]["cost_usd"] > 0
