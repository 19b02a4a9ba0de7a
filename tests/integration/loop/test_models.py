"""Which model is asked: fallbacks stand in for one that is away, and people change it between steps."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at, types
from outlive.base import ConflictError, ConversationId, InvalidError, new_operation_id
from outlive.conversation.events import Event
from outlive.loop.agents import AgentDefinition
from outlive.loop.budgets.raising import Budgets
from outlive.loop.models.errors import RETRIES
from outlive.loop.models.fallbacks import ATTEMPTS
from outlive.loop.replays import start_replay
from outlive.loop.steering import Steering
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = "anthropic:first", "openai:second", "anthropic:third"
DOWN = "[[error 529 always retry-after-ms=10]]"
TWO_STEPS = "[[tool list_files {}]] [[say All is well.]]"


async def agent(stage: Stage, *fallbacks: str, model: str = FIRST, **more: Any) -> ConversationId:
    """A conversation with an agent that has these fallbacks."""
    given = {"name": "steady", "model": model, "instructions": "Go on.", "tools": ("list_files",), **more}
    definition = AgentDefinition.model_validate({**given, "fallbacks": fallbacks})
    await stage.parts.agents.apply(definition, by=PERSON)
    return await stage.converse(agent="steady")


async def run(stage: Stage, conversation: ConversationId, text: str) -> list[Event]:
    turn = await stage.send(conversation, text)
    return [event for event in await stage.ended(conversation, turn) if event.turn == turn]


def asked(events: list[Event]) -> list[str]:
    """The models of the attempts, as the log names them."""
    return [each["name"] for each in data_of(events, "step.started") if each["kind"] == "model"]


def told(provider: PretendProvider) -> list[tuple[str, str]]:
    """Of each call the model, and what it was told that models had answered."""
    requests = [(call.model, json.loads(provider.ledger.request(call.number) or b"")) for call in provider.calls]
    return [
        (model, json.dumps([each for each in request["messages"] if each["role"] == "assistant"]))
        for model, request in requests
    ]


async def test_a_fallback_stands_in_for_a_model_that_is_away_to_the_end_of_the_turn(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await agent(stage, SECOND, THIRD)
    events = await run(stage, conversation, f"{TWO_STEPS} [[as first]] {DOWN}")
    tries = ATTEMPTS["model.overloaded"]
    assert asked(events) == [FIRST] * tries + [SECOND] * 2, "it holds: the first is not asked again"
    assert [call.model for call in provider.calls] == ["first"] * tries + ["second"] * 2
    [fallback] = data_of(events, "model.fallback")
    assert (fallback["before"], fallback["model"], fallback["attempt"]) == (FIRST, SECOND, tries + 1)
    assert fallback["code"] == "model.overloaded"
    assert "overloaded" in fallback["reason"]
    assert [each["attempt"] for each in data_of(events, "turn.recovered")] == [2, 3], "each attempt is explained once"
    answers = data_of(events, "model.responded")
    assert [answer["model"] for answer in answers] == [SECOND, SECOND]
    assert answers[-1]["text"] == "All is well."
    assert data_of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    again = await run(stage, conversation, "[[say The first is back.]]")
    assert asked(again) == [FIRST], "the next turn begins with the first"


async def test_what_a_model_said_before_it_broke_off_is_not_said_by_the_fallback(stage: Stage) -> None:
    conversation = await agent(stage, SECOND)
    cut = "[[cut after=2 always]] [[say dead and gone words]]"
    events = await run(stage, conversation, f"[[say Alive.]] [[as first]] {cut}")
    assert [answer["text"] for answer in data_of(events, "model.responded")] == ["Alive."]
    started = [event for event in events if event.type == "step.started"]
    assert [event.attempt for event in started] == [1, 2, 3, 4], "who follows is rewound at each"


async def test_when_all_are_away_the_turn_ends_as_without_fallbacks(stage: Stage, provider: PretendProvider) -> None:
    conversation = await agent(stage, SECOND, THIRD)
    events = await run(stage, conversation, DOWN)
    tries = ATTEMPTS["model.overloaded"]
    assert asked(events) == [FIRST] * tries + [SECOND] * tries + [THIRD] * RETRIES["model.overloaded"].attempts
    assert [each["model"] for each in data_of(events, "model.fallback")] == [SECOND, THIRD]
    [finished] = data_of(events, "turn.finished")
    alone = await run(stage, await stage.converse(), DOWN)
    assert finished == data_of(alone, "turn.finished")[0], "the same words"
    assert finished["outcome"] == "failed"


@pytest.mark.parametrize("trouble", ["[[error 400 always message=nonsense]]", "[[error 401 always]]"])
async def test_what_is_wrong_with_the_request_asks_no_fallback(
    stage: Stage, provider: PretendProvider, trouble: str
) -> None:
    conversation = await agent(stage, SECOND)
    events = await run(stage, conversation, f"[[say No.]] [[as first]] {trouble}")
    assert asked(events) == [FIRST]
    assert data_of(events, "model.fallback") == []
    assert data_of(events, "turn.finished")[0]["outcome"] == "failed"
    assert len(provider.calls) == 1


async def test_a_replay_asks_its_own_model_alone(stage: Stage, provider: PretendProvider) -> None:
    conversation = await agent(stage, SECOND)
    await run(stage, conversation, "[[say As it was.]] [[as third]] [[error 529 always retry-after-ms=1]]")
    replay, turn = await start_replay(
        stage.parts.conversations, new_operation_id(), conversation, actor=PERSON, model=THIRD
    )
    await stage.loop.submit(replay.id, turn)
    events = [event for event in await stage.ended(replay.id, turn) if event.turn == turn]
    assert set(asked(events)) == {THIRD}
    assert data_of(events, "turn.finished")[0]["outcome"] == "failed"


@pytest.fixture
async def refused(temporal: str, provider: PretendProvider, tmp_path: Path, monkeypatch: Any) -> AsyncIterator[Stage]:
    """A stage whose `openai` is an address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{held.getsockname()[1]}/v1")
        async with stage_at(tmp_path / "home", temporal) as stage:
            yield stage


async def test_a_provider_that_nobody_reaches_is_stood_in_for(refused: Stage, provider: PretendProvider) -> None:
    conversation = await agent(refused, FIRST, model=SECOND)
    events = await run(refused, conversation, "[[say Here I am.]]")
    [fallback] = data_of(events, "model.fallback")
    assert (fallback["before"], fallback["model"], fallback["code"]) == (SECOND, FIRST, "model.outage")
    assert [answer["text"] for answer in data_of(events, "model.responded")] == ["Here I am."]


# ── changed by a person ──


def steering_of(stage: Stage) -> Steering:
    return Steering(
        stage.parts.conversations, None, Budgets(stage.parts.conversations, stage.parts.agents, stage.parts.clock)
    )


async def change(stage: Stage, conversation: ConversationId, model: str, scope: Any = "turn") -> None:
    """Asked twice, as after a crash."""
    operation = new_operation_id()
    for _ in range(2):
        await steering_of(stage).change_model(operation, conversation, actor=PERSON, model=model, scope=scope)


async def test_another_model_goes_on_with_the_turn_from_its_next_step_and_is_sent_no_foreign_thinking(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation = await agent(stage)
    text = "[[pace 0.1]] [[think Hm, well.]] [[say one two three four five six seven]] "
    turn = await stage.send(conversation, text + "[[tool list_files {}]] [[tool list_files {}]] [[say Done.]]")
    await eventually(lambda: stage.has(conversation, "step.started"), WITHIN_S)
    await change(stage, conversation, SECOND)
    events = await stage.ended(conversation, turn)
    assert asked(events) == [FIRST, SECOND, SECOND], "what has begun is finished"
    assert data_of(events, "model.changed") == [{"model": SECOND, "before": FIRST, "scope": "turn"}]
    assert data_of(events, "turn.recovered") == []
    (_, nothing), (second, answers), *_ = told(provider)
    assert (nothing, second) == ("[]", "second")
    assert "Hm, well." not in answers, "thinking goes back to the model that thought it alone"
    assert "one two three" in answers
    later = await run(stage, conversation, "[[say Again.]]")
    assert asked(later) == [FIRST]
    assert "Hm, well." in told(provider)[-1][1]
    assert (await stage.parts.conversations.get(conversation)).model is None


async def test_a_model_for_the_conversation_is_asked_in_later_turns_too(stage: Stage) -> None:
    conversation = await agent(stage)
    assert asked(await run(stage, conversation, "[[say One.]]")) == [FIRST]
    await change(stage, conversation, SECOND, "conversation")
    assert asked(await run(stage, conversation, "[[say Two.]]")) == [SECOND]
    assert asked(await run(stage, conversation, "[[say Three.]]")) == [SECOND]
    assert (await stage.parts.conversations.get(conversation)).model == SECOND
    assert types(await stage.events(conversation)).count("model.changed") == 1


async def test_who_changes_the_model_of_a_step_that_is_tried_again_is_heard_at_its_next_attempt(stage: Stage) -> None:
    conversation = await agent(stage)
    down = "[[error 529 always retry-after-ms=1500]]"
    turn = await stage.send(conversation, f"[[say Out of it.]] [[as first]] {down}")
    await eventually(lambda: stage.has(conversation, "turn.recovered"), WITHIN_S)
    await change(stage, conversation, SECOND)
    events = await stage.ended(conversation, turn)
    assert asked(events)[-1] == SECOND
    assert len(asked(events)) < 5
    assert data_of(events, "turn.finished")[0]["outcome"] == "done"
    assert data_of(events, "model.fallback") == []


async def test_what_nothing_could_ask_or_afford_is_refused_with_what_there_is(stage: Stage) -> None:
    conversation = await agent(stage, model="openai:gpt-4.1", budget={"turn": {"usd": 1.0}})
    with pytest.raises(ConflictError, match="No turn is open"):
        await change(stage, conversation, "openai:gpt-4o")
    with pytest.raises(InvalidError, match=r"anthropic, demo, openai\..*openai:gpt-4\.1"):
        await change(stage, conversation, "gpt", "conversation")
    with pytest.raises(InvalidError, match="nobody knows the price"):
        await change(stage, conversation, SECOND, "conversation")
    await change(stage, conversation, "openai:gpt-4o", "conversation")


async def test_what_a_fallback_used_is_counted_by_its_own_price(stage: Stage) -> None:
    conversation = await agent(
        stage, "openai:gpt-4o", model="openai:gpt-4.1", budget={"turn": {"usd": 5.0, "tokens": 100_000}}
    )
    events = await run(stage, conversation, f"[[say Dear.]] [[as gpt-4.1]] {DOWN}")
    [usage] = [answer["usage"] for answer in data_of(events, "model.responded")]
    dollars = (usage["input_tokens"] * 2.5 + usage["output_tokens"] * 10 + usage["cache_read_tokens"] * 1.25) / 1e6
    assert usage["cost_usd"] == pytest.approx(dollars)
    with pytest.raises(InvalidError, match="nobody knows the price"):
        await agent(stage, "openai:nobody-knows", model="openai:gpt-4.1", budget={"turn": {"usd": 5.0}})
