"""Whatever goes wrong at a provider is told apart, through the official SDKs, and tried again by the loop alone."""

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest

from eventually import eventually
from integration.loop.models.conftest import answer_of, question
from outlive.base import OutliveError
from outlive.loop.models import Answer, ModelClient, TextDelta
from outlive.loop.models.client import Patience
from outlive.testing.pretend_provider import PretendProvider, Trouble

pytestmark = pytest.mark.anyio

IMPATIENT = Patience(connect_s=5, first_byte_s=0.3, silence_s=0.3)
Connect = Callable[..., ModelClient]

ERRORS = {
    "error 429 retry-after=7": ("model.rate_limited", 7.0),
    "error 429 retry-after-ms=1500": ("model.rate_limited", 1.5),
    "error 429": ("model.rate_limited", None),
    'error 429 code=insufficient_quota message="You exceeded your current quota"': ("model.no_credit", None),
    "error 529 type=overloaded_error": ("model.overloaded", None),
    "error 503 retry-after=2": ("model.overloaded", 2.0),
    "error 500": ("model.outage", None),
    "error 502": ("model.outage", None),
    "error 408": ("model.outage", None),
    "error 400": ("model.bad_request", None),
    "error 422": ("model.bad_request", None),
    "error 413 type=request_too_large": ("model.context_too_long", None),
    'error 400 message="prompt is too long: 9 tokens > 8 maximum"': ("model.context_too_long", None),
    'error 400 message="input length and `max_tokens` exceed context limit: 9 + 9 > 8"': (
        "model.context_too_long",
        None,
    ),
    "error 400 code=context_length_exceeded": ("model.context_too_long", None),
    'error 400 message="the request exceeds the available context size"': ("model.context_too_long", None),
    'error 400 message="Output blocked by content filtering policy"': ("model.refused", None),
    'error 400 message="Your credit balance is too low to access the API"': ("model.no_credit", None),
    "error 403": ("model.unauthorized", None),
    "sse-error overloaded_error after=1": ("model.overloaded", None),
    "sse-error api_error after=1": ("model.outage", None),
    "sse-error invalid_request_error after=1": ("model.outage", None),
    "cut after=0": ("model.outage", None),
    "cut after=2": ("model.outage", None),
    "end after=1": ("model.outage", None),
    "garbage after=1": ("model.garbled", None),
    "html": ("model.garbled", None),
}


async def failure_of(model: ModelClient, text: str, name: str = "pretend") -> OutliveError:
    with pytest.raises(OutliveError) as caught:
        await answer_of(model, question(text, model=name, step=None))
    return caught.value


@pytest.mark.parametrize("trouble", ERRORS)
async def test_an_error_is_told_apart_and_asked_for_once(
    model: ModelClient, provider: PretendProvider, trouble: str
) -> None:
    error = await failure_of(model, f"[[{trouble}]] [[say one two three four]]")
    assert (error.code, error.retry_after_s) == ERRORS[trouble], error.message
    assert len(provider.calls) == 1


async def test_a_date_to_come_back_at_is_a_number_of_seconds(model: ModelClient, provider: PretendProvider) -> None:
    provider.troubles.append(Trouble("error", status=429, headers=(("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT"),)))
    error = await failure_of(model, "hi")
    assert (error.code, error.retry_after_s) == ("model.rate_limited", 3600.0)  # bounded


async def test_a_context_that_is_too_long_is_told_in_both_providers_words(model: ModelClient) -> None:
    assert (await failure_of(model, "word " * 2000, "pretend-1k")).code == "model.context_too_long"


async def test_a_model_that_is_not_there_is_told(model: ModelClient) -> None:
    error = await failure_of(model, "hi", "missing-model")
    assert (error.kind, error.code) == ("not_found", "model.not_found")


async def test_a_wrong_key_is_told_with_the_variable_to_set_and_without_the_key(
    connect: Connect, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{api.upper()}_API_KEY"
    monkeypatch.setenv(variable, "wrong-key-4711")
    error = await failure_of(connect(), "hi")
    assert (error.kind, error.code) == ("denied", "model.unauthorized")
    assert variable in error.message
    assert "4711" not in f"{error.message} {error.facts}"


async def test_a_provider_that_is_away_is_an_outage(
    connect: Connect, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{api.upper()}_BASE_URL", "http://127.0.0.1:9")
    error = await failure_of(connect(), "hi")
    assert (error.code, error.is_retryable) == ("model.outage", True)


@pytest.mark.parametrize("trouble", ["stall after=0", "stall after=2", "slow 60"])
async def test_silence_is_an_outage(connect: Connect, provider: PretendProvider, trouble: str) -> None:
    with anyio.fail_after(30):
        error = await failure_of(connect(IMPATIENT), f"[[{trouble}]] [[say one two three]]")
    assert error.code == "model.outage"
    await eventually(lambda: provider.calls[0].ended_at is not None, 20)


async def test_a_slow_answer_is_not_silence(connect: Connect) -> None:
    """Each piece is in time, all of them together would not be."""
    patience = Patience(connect_s=5, first_byte_s=10, silence_s=2.0)
    answer = await answer_of(connect(patience), question("[[pace 0.3]] [[say a b c d e f g h]]"))
    assert answer.text == "a b c d e f g h"


async def test_trouble_that_passes_is_over_when_it_was_said_to_be(
    model: ModelClient, provider: PretendProvider
) -> None:
    script = "[[error 529 x2]] [[cut after=1]] [[say At last.]]"
    codes = [(await failure_of(model, script)).code for _ in range(3)]
    assert codes == ["model.overloaded", "model.overloaded", "model.outage"]
    assert (await answer_of(model, question(script, step=None))).text == "At last."
    assert [call.outcome for call in provider.calls] == ["error 529", "error 529", "cut", "answered"]


async def test_cancelling_closes_the_stream_at_once(model: ModelClient, provider: PretendProvider) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            await answer_of(model, question("[[stall after=2]] [[say one two three]]"))

        tasks.start_soon(ask)
        await eventually(lambda: bool(provider.calls) and provider.calls[0].pieces == 2, 20)
        tasks.cancel_scope.cancel()
    await eventually(lambda: provider.calls[0].outcome == "left", 20)


async def test_closing_the_stream_closes_the_connection(model: ModelClient, provider: PretendProvider) -> None:
    async with aclosing(model.stream(question("[[stall after=2]] [[say one two three]]"))) as stream:
        assert await anext(stream) == TextDelta("one ")
    await eventually(lambda: provider.calls[0].outcome == "left", 20)


async def test_a_client_is_good_after_every_trouble(model: ModelClient, provider: PretendProvider) -> None:
    for trouble in ("cut after=1", "garbage after=1", "error 500", "sse-error api_error after=1"):
        await failure_of(model, f"[[{trouble}]] [[say one two three]] {trouble}")
        assert isinstance(await answer_of(model, question(f"[[say fine]] {trouble}", step=None)), Answer)
