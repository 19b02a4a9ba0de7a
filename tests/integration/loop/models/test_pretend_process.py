"""The pretend provider in a process of its own: asked by an SDK, told what to do and read by a test."""

import pytest

from integration.loop.models.conftest import answer_of, question
from outlive.base import OutliveError
from outlive.loop.models.openai import OpenAIModels
from outlive.testing.pretend_provider import Trouble, provider_process

pytestmark = pytest.mark.anyio


async def test_it_answers_counts_and_makes_trouble_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    with provider_process() as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        model = OpenAIModels()
        provider.arm(Trouble("error", status=429, headers=(("retry-after", "3"),), match="make trouble"))
        provider.pace(slow_s=0.01, pace_s=0.001)
        assert (await answer_of(model, question("[[say calm]]", step="step_a"))).text == "calm"
        with pytest.raises(OutliveError) as caught:
            await answer_of(model, question("[[say x]] make trouble", step="step_b"))
        assert caught.value.retry_after_s == 3.0
        assert (await answer_of(model, question("[[say x]] make trouble", step="step_b"))).text == "x"
        await model.aclose()
        calls = provider.calls()
        assert [(call.step, call.nth, call.outcome) for call in calls] == [
            ("step_a", 1, "answered"),
            ("step_b", 1, "error 429"),
            ("step_b", 2, "answered"),
        ]
        assert provider.request(2)["messages"][0]["content"] == "[[say x]] make trouble"
