"""What a provider answers comes through its official SDK whole, once, and goes back as the provider needs it."""

import json
from typing import Any

import pytest

from integration.loop.models.conftest import answer_of, pieces_of, question
from outlive.loop.models import (
    Answer,
    ArgumentsDelta,
    AssistantMessage,
    BadRequestError,
    Image,
    ModelClient,
    Note,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
)
from outlive.testing.pretend_provider import PretendProvider

pytestmark = pytest.mark.anyio

SHELL = ToolSpec("shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
TWO_CALLS = (
    '[[think Where am I?]] [[say I look.]] [[tool shell {"command": "ls"}]] [[also tool shell {"command": "pwd"}]]'
)


def asked(provider: PretendProvider, number: int = -1) -> dict[str, Any]:
    """The body of a request, as it was on the wire."""
    body = provider.ledger.request(provider.calls[number].number)
    assert body is not None
    document: dict[str, Any] = json.loads(body)
    return document


def as_said(api: str, answer: Answer, model: str = "pretend") -> AssistantMessage:
    return AssistantMessage(answer.text, answer.tool_calls, answer.blocks, f"{api}:{model}")


async def test_deltas_spell_the_text_of_the_one_answer_at_the_end(model: ModelClient) -> None:
    *deltas, answer = await pieces_of(model, question("[[say Grüße aus dem Süden, 你好 🙂]]"))
    assert isinstance(answer, Answer)
    assert answer.text == "Grüße aus dem Süden, 你好 🙂"
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.text
    assert answer.stop_reason == "end_turn"
    assert answer.blocks == ()


async def test_a_very_long_answer_comes_whole_in_small_deltas(model: ModelClient) -> None:
    *deltas, answer = await pieces_of(model, question("[[big 500000]]"))
    assert isinstance(answer, Answer)
    assert len(answer.text) == 500_000
    assert max(len(delta.text) for delta in deltas if isinstance(delta, TextDelta)) <= 8192


async def test_parallel_calls_come_in_order_with_their_arguments(model: ModelClient) -> None:
    answer = await answer_of(model, question(TWO_CALLS, tools=(SHELL,)))
    assert [(call.name, call.arguments, call.error) for call in answer.tool_calls] == [
        ("shell", {"command": "ls"}, None),
        ("shell", {"command": "pwd"}, None),
    ]
    assert len({call.id for call in answer.tool_calls}) == 2
    assert answer.stop_reason == "tool_use"


async def test_a_model_that_writes_a_long_file_gives_signs_of_life(model: ModelClient) -> None:
    pieces = await pieces_of(model, question('[[tool write_file {"content": "long"}]]'))
    written = "".join(piece.text for piece in pieces if isinstance(piece, ArgumentsDelta))
    assert written == '{"content": "long"}'


async def test_thinking_is_streamed_apart_from_what_is_said(model: ModelClient) -> None:
    pieces = await pieces_of(model, question(TWO_CALLS))
    assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta)) == "Where am I?"
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "I look."


async def test_a_conversation_goes_on_with_results_notes_and_follow_ups(
    model: ModelClient, api: str, provider: PretendProvider
) -> None:
    """The pretend provider refuses what the real one refuses: a call without a result, an order that is not theirs."""
    script = f"{TWO_CALLS} [[say Both are here: ]] [[quote 100]]"
    first = await answer_of(model, question(script))
    calls = first.tool_calls
    second = await answer_of(
        model,
        question(
            script,
            as_said(api, first),
            Note("The machine was rebooted."),
            ToolResultMessage(calls[0].id, "shell", "a.txt"),
            "Hurry up.",
            ToolResultMessage(calls[1].id, "shell", "/workspace", is_error=True),
        ),
    )
    assert second.text == "Both are here:a.txt\n/workspace"
    assert "<note>The machine was rebooted.</note>" in json.dumps(asked(provider))


async def test_thinking_goes_back_as_it_came(model: ModelClient, api: str, provider: PretendProvider) -> None:
    """Anthropic signs its thinking and refuses it changed or moved; compatible servers want theirs with the calls."""
    script = '[[think Hm, hm.]] [[say Let me see.]] [[tool shell {"command": "ls"}]] [[say ok]]'
    first = await answer_of(model, question(script))
    result = ToolResultMessage(first.tool_calls[0].id, "shell", "")
    assert (await answer_of(model, question(script, as_said(api, first), result))).text == "ok"
    answered = next(message for message in asked(provider)["messages"] if message["role"] == "assistant")
    if api == "anthropic":
        assert [block["type"] for block in answered["content"]] == ["thinking", "text", "tool_use"]
        assert answered["content"][0]["thinking"] == "Hm, hm."
    else:
        assert answered["reasoning_content"] == "Hm, hm."


@pytest.mark.parametrize("api", ["anthropic"], indirect=True)  # nobody else signs
async def test_thinking_that_was_changed_is_noticed(model: ModelClient, api: str) -> None:
    said = AssistantMessage(
        "x", blocks=({"type": "thinking", "thinking": "a", "signature": "b"},), model=f"{api}:pretend"
    )
    with pytest.raises(BadRequestError, match="signature"):
        await answer_of(model, question("hi", said, "and?"))


async def test_thinking_of_another_model_stays_behind(model: ModelClient, api: str, provider: PretendProvider) -> None:
    script = '[[think Hm, hm.]] [[tool shell {"command": "ls"}]] [[say ok]]'
    first = await answer_of(model, question(script))
    result = ToolResultMessage(first.tool_calls[0].id, "shell", "")
    second = await answer_of(model, question(script, as_said(api, first, "another"), result))
    assert second.text == "ok"
    assert "Hm, hm." not in json.dumps([m for m in asked(provider)["messages"] if m["role"] == "assistant"])


async def test_calls_of_another_provider_are_taken_along(model: ModelClient) -> None:
    """A conversation may change its model: ids of calls are made such that the new one takes them."""
    said = AssistantMessage("", (ToolCall("functions.shell:0", "shell", {"command": "ls"}),), model="other:model")
    answer = await answer_of(
        model, question("hi", said, ToolResultMessage("functions.shell:0", "shell", "a.txt"), "so?")
    )
    assert answer.text == "You said: so?"


@pytest.mark.parametrize("arguments", ['{"command": "ls', "[1, 2]", "{'command': 1}", '{"n": NaN}'])
async def test_arguments_that_are_no_json_object_are_kept_as_a_call_that_says_so(
    model: ModelClient, arguments: str
) -> None:
    answer = await answer_of(model, question(f"[[badtool shell {arguments}]]"))
    (call,) = answer.tool_calls
    assert call.name == "shell"
    assert call.arguments == {}
    assert call.error is not None
    assert "arguments are not" in call.error


async def test_a_call_that_was_cut_off_is_never_taken_for_whole(model: ModelClient) -> None:
    answer = await answer_of(model, question('[[stop max_tokens]] [[tool shell {"command": "rm -r build"}]]'))
    assert answer.stop_reason == "max_tokens"
    assert answer.tool_calls[0].error is not None
    assert answer.tool_calls[0].arguments == {}


async def test_a_refusal_ends_the_answer_and_is_told(model: ModelClient) -> None:
    answer = await answer_of(model, question("[[say I will not.]] [[stop refusal]]"))
    assert (answer.text, answer.stop_reason) == ("I will not.", "refusal")


async def test_usage_counts_what_the_cache_gave_apart(model: ModelClient, api: str) -> None:
    script = f"[[tool shell {{}}]] [[say ok]] {'long ' * 400}"
    first = await answer_of(model, question(script, system="Be good.", tools=(SHELL,)))
    result = ToolResultMessage(first.tool_calls[0].id, "shell", "out")
    second = await answer_of(model, question(script, as_said(api, first), result, system="Be good.", tools=(SHELL,)))
    assert second.usage.output_tokens > 0
    assert second.usage.cache_read_tokens > 400
    assert second.usage.input_tokens < 200
    if api == "anthropic":
        assert second.usage.cache_write_tokens > 0


@pytest.mark.parametrize("api", ["anthropic"], indirect=True)  # others cache without being asked
async def test_instructions_tools_and_the_newest_messages_are_cached(
    model: ModelClient, provider: PretendProvider
) -> None:
    said = AssistantMessage("a")
    await answer_of(model, question("one", said, "two", said, "three", system="Be good.", tools=(SHELL, SHELL)))
    body = asked(provider)
    assert "cache_control" in body["system"][-1]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    marked = ["cache_control" in message["content"][-1] for message in body["messages"]]
    assert marked == [False, False, True, False, True]


async def test_a_provider_is_told_the_step_and_the_effort(
    model: ModelClient, api: str, provider: PretendProvider
) -> None:
    await answer_of(model, question("hi", step="step_abc", effort="high", max_tokens=77))
    assert [call.step for call in provider.calls] == ["step_abc"]
    body = asked(provider)
    assert body["max_tokens"] == 77
    assert (body["output_config"]["effort"] if api == "anthropic" else body["reasoning_effort"]) == "high"


async def test_pictures_go_to_the_model(model: ModelClient, provider: PretendProvider) -> None:
    picture = Image("image/png", b"\x89PNG")
    answer = await answer_of(model, question(UserMessage("What is this?", (picture,))))
    assert answer.text == "You said: What is this?"
    assert "iVBORw==" in json.dumps(asked(provider))


async def test_the_same_question_gets_the_same_answer_for_ever(model: ModelClient, provider: PretendProvider) -> None:
    """What tests of the loop rely on: a step that is tried again gets what it would have got."""
    first = await answer_of(model, question(TWO_CALLS))
    assert await answer_of(model, question(TWO_CALLS)) == first
    assert [call.nth for call in provider.calls] == [1, 2]
