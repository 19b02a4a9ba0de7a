"""What goes wrong at a provider, one by one: mended with a word in the log, or the end of the turn with the reason."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.loop.turns import Stage, data_of, stage_at, types
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

SILENCE_S = 3.0  # long enough that a busy host is not taken for a silent provider


@pytest.fixture
async def impatient(temporal: str, provider: PretendProvider, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_at(tmp_path / "home", temporal, stall_s=SILENCE_S) as stage:
        yield stage


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("[[error 429 retry-after-ms=50]]", "limits how often"),
        ("[[error 529 retry-after-ms=50]]", "overloaded"),
        ("[[error 500]]", "is away or broke off"),
        ("[[cut after=2]]", "is away or broke off"),
        ("[[garbage]]", "language"),
        ("[[sse-error overloaded_error after=2]]", "overloaded"),
    ],
)
async def test_what_a_retry_mends_is_tried_again_and_said(
    stage: Stage, provider: PretendProvider, trouble: str, said: str
) -> None:
    _, events = await stage.ask(f"{trouble} [[say All is well in the end.]]")
    [recovered] = data_of(events, "turn.recovered")
    assert (recovered["what"], recovered["attempt"]) == ("step_retried", 2)
    assert said in recovered["reason"]
    assert [event.attempt for event in events if event.type == "step.started"] == [1, 2]
    [answer] = data_of(events, "model.responded")
    assert answer["text"] == "All is well in the end."
    assert data_of(events, "turn.finished")[0]["outcome"] == "done"
    assert len(provider.calls) == 2


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("[[error 400 always message=nonsense]]", "nonsense"),
        ("[[error 401 always]]", "ANTHROPIC_API_KEY"),
        ("[[error 404 always]]", "no such model"),
        ('[[error 400 always message="Output blocked by content filtering policy"]]', "refuses"),
        ("[[stop refusal]] [[say No.]]", "refused"),
    ],
)
async def test_what_no_retry_mends_ends_the_turn_with_its_reason(
    stage: Stage, provider: PretendProvider, trouble: str, said: str
) -> None:
    _, events = await stage.ask(trouble)
    [finished] = data_of(events, "turn.finished")
    assert finished["outcome"] == "failed"
    assert said in finished["reason"]
    assert len(provider.calls) == 1


async def test_a_conversation_that_is_too_long_for_the_model_is_told_shorter(
    stage: Stage, provider: PretendProvider
) -> None:
    conversation, _ = await stage.ask("[[big 30000]]")
    turn = await stage.send(conversation, "[[say Short.]]", "anthropic:pretend-6k")
    events = await stage.ended(conversation, turn)
    assert data_of(events, "model.responded")[-1]["text"] == "Short."
    assert [each["outcome"] for each in data_of(events, "compaction.finished")] == ["compacted"]
    assert [call.outcome for call in provider.calls] == ["answered", "refused", "answered", "answered"]


async def test_without_a_key_the_turn_ends_with_the_variable_to_set(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not that of the default model: a worker has a client for it from its start.
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _, events = await stage.ask("hello", "openai:gpt")
    [finished] = data_of(events, "turn.finished")
    assert finished["outcome"] == "failed"
    assert "OPENAI_API_KEY" in finished["reason"]
    assert types(events).count("step.started") == 1


@pytest.mark.parametrize("model", ["anthropic:pretend", "openai:pretend"])
async def test_a_model_that_thinks_for_long_is_waited_for_as_long_as_its_provider_gives_signs_of_life(
    impatient: Stage, provider: PretendProvider, model: str
) -> None:
    _, events = await impatient.ask(f"[[pings {2 * SILENCE_S}]] [[say I have thought.]]", model)
    assert data_of(events, "turn.recovered") == []
    assert [answer["text"] for answer in data_of(events, "model.responded")] == ["I have thought."]
    assert [call.outcome for call in provider.calls] == ["answered"]


async def test_a_provider_that_falls_silent_is_asked_again(impatient: Stage, provider: PretendProvider) -> None:
    _, events = await impatient.ask("[[stall after=2]] [[say one two three four]]")
    [recovered] = data_of(events, "turn.recovered")
    assert recovered["what"] == "step_retried"
    assert f"silent for {SILENCE_S:g} s" in recovered["reason"]
    assert [answer["text"] for answer in data_of(events, "model.responded")] == ["one two three four"]
    assert [call.outcome for call in provider.calls] == ["left", "answered"]
