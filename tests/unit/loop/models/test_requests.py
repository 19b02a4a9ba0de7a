"""Whatever a conversation holds, its request is one that the provider takes: by the rules of the pretend one."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.models import (
    AssistantMessage,
    Image,
    Message,
    ModelRequest,
    Note,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    cost_usd,
)
from outlive.loop.models.anthropic_wire import AnthropicFold
from outlive.loop.models.anthropic_wire import request_body as anthropic_body
from outlive.loop.models.openai_wire import request_body as openai_body
from outlive.loop.models.prices import Price, prices
from outlive.loop.models.registry import DEFAULT_MODELS
from outlive.testing.pretend_provider import anthropic_wire, openai_wire
from outlive.testing.pretend_provider.frames import Asked

texts = st.text(st.sampled_from("ab \n\tü🙂"), max_size=6)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Somebody speaks first; every call has its result before the model speaks again, with anything in between."""
    messages: list[Message] = [UserMessage(draw(texts))]
    for turn in range(draw(st.integers(0, 4))):
        calls = tuple(
            ToolCall(f"c{turn}.{n}", "shell", {"command": draw(texts)}) for n in range(draw(st.integers(0, 3)))
        )
        messages.append(AssistantMessage(draw(texts), calls, model="openai:m"))
        behind: list[Message] = [
            ToolResultMessage(call.id, "shell", draw(texts), draw(st.booleans())) for call in calls
        ]
        behind += draw(st.lists(st.builds(Note, texts) | st.builds(UserMessage, texts), max_size=2))
        messages += draw(st.permutations(behind))
    return (*messages, UserMessage(draw(texts)))


@given(conversations(), texts)
def test_every_conversation_is_taken_by_both_providers(messages: tuple[Message, ...], system: str) -> None:
    request = ModelRequest("m", messages, system=system)
    taken = anthropic_wire.read_request(anthropic_body(request), {"x-api-key": "k", "anthropic-version": "1"})
    assert isinstance(taken, Asked), taken
    taken = openai_wire.read_request(openai_body(request), {"authorization": "Bearer k"})
    assert isinstance(taken, Asked), taken


def test_results_come_first_then_what_was_said_in_its_order() -> None:
    said = AssistantMessage("", (ToolCall("c", "shell", {}),))
    messages = (UserMessage("go"), said, Note("n"), UserMessage("u"), ToolResultMessage("c", "shell", "out"))
    content: list[dict[str, Any]] = anthropic_body(ModelRequest("m", messages))["messages"][2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "text", "text"]
    assert [block.get("text") for block in content[1:]] == ["<note>n</note>", "u"]
    roles = [message["role"] for message in openai_body(ModelRequest("m", messages))["messages"]]
    assert roles == ["user", "assistant", "tool", "user", "user"]


def test_pictures_of_a_tool_reach_both_providers() -> None:
    result = ToolResultMessage("c", "browser", "see", images=(Image("image/png", b"x"),))
    messages = (UserMessage("go"), AssistantMessage("", (ToolCall("c", "browser", {}),)), result)
    content = anthropic_body(ModelRequest("m", messages))["messages"][2]["content"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image"]
    last = openai_body(ModelRequest("m", messages))["messages"][-1]
    assert last["content"][1]["image_url"]["url"] == "data:image/png;base64,eA=="


def test_blocks_go_back_in_place_and_survive_a_text_that_was_cut() -> None:
    fold = AnthropicFold()
    for event in (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "First. "}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "thinking", "thinking": "h", "signature": "s"},
        },
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "Then."}},
        {"type": "message_stop"},
    ):
        list(fold.take(event))
    answer = fold.answer()

    def content(text: str) -> list[str]:
        said = AssistantMessage(text, (), answer.blocks, "anthropic:m")
        body = anthropic_body(ModelRequest("m", (UserMessage("go"), said, UserMessage("on"))))
        return [block.get("text", block["type"]) for block in body["messages"][1]["content"]]

    assert content(answer.text) == ["First. ", "thinking", "Then."]
    assert content("First [cut]") == ["thinking", "First [cut]"]


def test_cost_is_by_kind_of_token_and_unknown_is_not_free() -> None:
    usage = Usage(
        input_tokens=1_000_000, output_tokens=2_000_000, cache_read_tokens=4_000_000, cache_write_tokens=8_000_000
    )
    price = Price(input=1, output=10, cache_read=0.1, cache_write=2, as_of=date(2026, 1, 1), source="a test")
    assert cost_usd("x:y", usage, {"x:y": price}) == pytest.approx(1 + 20 + 0.4 + 16)
    assert cost_usd("x:y-20260101", usage, {"x:y": price}) == cost_usd("x:y-2026-01-01", usage, {"x:y": price})
    assert cost_usd("x:z", usage, {"x:y": price}) is None


def test_every_price_is_that_of_a_model_of_ours() -> None:
    assert {model.partition(":")[0] for model in prices()} <= {"anthropic", "openai", "demo"}
    assert all(price.cache_read <= price.input <= price.output for price in prices().values())
    assert all(price.source and price.as_of > date(2026, 1, 1) for price in prices().values())


def test_the_default_models_have_a_price_and_a_model_of_no_price_costs_null() -> None:
    usage = Usage(input_tokens=1_000_000)
    for provider, name in DEFAULT_MODELS.values():
        assert (cost_usd(f"{provider}:{name}", usage) or 0) > 0
    assert cost_usd("anthropic:claude-of-tomorrow", usage) is None
