"""Streams of both providers become the same answer, however they are cut and whatever compatible servers leave out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import OutliveError
from outlive.loop.models import Answer, Piece, TextDelta
from outlive.loop.models.answering import ANSWER_LIMIT, ARGUMENTS_LIMIT, CALLS_LIMIT, DELTA_LIMIT, Fold
from outlive.loop.models.anthropic_wire import AnthropicFold
from outlive.loop.models.openai_wire import OpenAIFold, limit_name


def chunk(stop: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}


def called(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}])


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grown(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


STOP = {"type": "message_stop"}


def run(fold: Fold, events: Sequence[Mapping[str, Any]]) -> tuple[list[Piece], Answer]:
    pieces = [piece for event in events for piece in fold.take(event)]
    return pieces, fold.answer()


def texts(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


@given(st.lists(st.text(st.characters(codec="utf-16")), max_size=8))
def test_deltas_are_whole_characters_even_where_a_server_cuts_them(words: list[str]) -> None:
    """Some servers send half of a surrogate pair at the end of one piece and half at the start of the next."""
    whole = "".join(words)
    halves = whole.encode("utf-16-le", "surrogatepass")
    pieces = [halves[n : n + 2].decode("utf-16-le", "surrogatepass") for n in range(0, len(halves), 2)]
    anthropic = [started(0, type="text", text=""), *(grown(0, type="text_delta", text=p) for p in pieces), STOP]
    openai = [*(chunk(content=piece) for piece in pieces), chunk("stop")]
    for fold, events in ((AnthropicFold(), anthropic), (OpenAIFold(), openai)):
        deltas, answer = run(fold, events)
        assert answer.text == texts(deltas) == whole
        assert all(piece.text.encode() is not None for piece in deltas if isinstance(piece, TextDelta))


def test_a_huge_piece_is_passed_on_in_small_ones() -> None:
    deltas, answer = run(OpenAIFold(), [chunk(content="x" * (DELTA_LIMIT * 3 + 1)), chunk("stop")])
    assert [len(piece.text) for piece in deltas if isinstance(piece, TextDelta)] == [DELTA_LIMIT] * 3 + [1]
    assert len(answer.text) == DELTA_LIMIT * 3 + 1


def test_an_answer_without_end_is_ended() -> None:
    fold = OpenAIFold()
    piece = "x" * (ANSWER_LIMIT // 8)
    with pytest.raises(OutliveError) as caught:
        run(fold, [chunk(content=piece)] * 9)
    assert (caught.value.kind, caught.value.code) == ("exhausted", "model.answer_too_long")
    opened = [started(0, type="thinking", thinking="")]
    with pytest.raises(OutliveError) as caught:
        run(AnthropicFold(), opened + [grown(0, type="thinking_delta", thinking=piece)] * 9)
    assert caught.value.code == "model.answer_too_long"


def test_too_many_calls_end_an_answer() -> None:
    with pytest.raises(OutliveError, match="tool calls"):
        run(OpenAIFold(), [called(n, f"c{n}", "shell", "{}") for n in range(CALLS_LIMIT + 1)])
    with pytest.raises(OutliveError, match="tool calls"):
        run(AnthropicFold(), [started(n, type="tool_use", id=f"c{n}", name="shell") for n in range(CALLS_LIMIT + 1)])


def test_arguments_that_are_too_long_are_a_call_that_says_so() -> None:
    huge = '{"a": "' + "x" * ARGUMENTS_LIMIT + '"}'
    _, answer = run(OpenAIFold(), [called(0, "c", "shell", huge), chunk("tool_calls")])
    assert answer.tool_calls[0].arguments == {}
    assert "more than" in (answer.tool_calls[0].error or "")


@pytest.mark.parametrize(
    "events",
    [
        [
            called(0, "a", "shell", ""),
            called(0, None, None, '{"n":'),
            called(0, None, None, "1}"),
            called(1, "b", "ls", ""),
        ],
        [called(None, "a", "shell", '{"n":1}'), called(None, "b", "ls", "{}")],  # no index
        [called(0, "a", "shell", '{"n":1}'), called(0, "b", "ls", "{}")],  # one index for all
        [called(0, "a", "shell", {"n": 1}), called(1, "b", "ls", None)],  # arguments as they are
        [
            called(0, "a", None, ""),
            called(0, "a", "shell", '{"n":1}'),
            called(1, "b", "ls", ""),
        ],  # the name comes later
    ],
)
def test_calls_are_put_together_as_servers_send_them(events: list[dict[str, Any]]) -> None:
    _, answer = run(OpenAIFold(), [*events, chunk("stop")])
    assert [(c.id, c.name, c.arguments) for c in answer.tool_calls] == [("a", "shell", {"n": 1}), ("b", "ls", {})]
    assert answer.stop_reason == "tool_use"  # though the server said stop


def test_calls_have_ids_of_their_own() -> None:
    _, answer = run(
        OpenAIFold(), [called(None, "", "a", ""), called(None, "x", "b", ""), called(None, "x", "c", ""), chunk("stop")]
    )
    ids = [call.id for call in answer.tool_calls]
    assert len(set(ids)) == 3
    assert all(ids)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": 3},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},  # of no block
        {"type": "content_block_start", "index": "0", "content_block": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}},
    ],
)
def test_what_is_no_event_of_anthropic_is_garbled(event: dict[str, Any]) -> None:
    with pytest.raises(OutliveError) as caught:
        run(AnthropicFold(), [event])
    assert caught.value.code == "model.garbled"


def test_events_that_anthropic_may_add_are_passed_over() -> None:
    events = [{"type": "news"}, started(0, type="poem"), grown(0, type="verse", text=1), STOP]
    assert run(AnthropicFold(), events)[1].text == ""


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": [{}]},
        {"choices": "x"},
        chunk(tool_calls="x"),
        chunk(tool_calls=[1]),
        chunk(tool_calls=[{"function": None}]),
    ],
)
def test_what_is_no_chunk_of_openai_is_garbled(event: dict[str, Any]) -> None:
    with pytest.raises(OutliveError) as caught:
        run(OpenAIFold(), [event])
    assert caught.value.code == "model.garbled"


NAMES = "type index delta text choices tool_calls function usage id content_block".split()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "index", "delta", "choices", "usage"]), json_values), max_size=4)
)
def test_no_garbage_is_worse_than_garbled(events: list[dict[str, Any]]) -> None:
    folds: list[Fold] = [AnthropicFold(), OpenAIFold()]
    for fold in folds:
        try:
            run(fold, events)
        except OutliveError as error:
            assert error.code in ("model.garbled", "model.outage")  # noqa: PT017 (both ends are right)


def test_an_unfinished_answer_is_an_outage() -> None:
    folds: list[tuple[Fold, dict[str, Any]]] = [
        (AnthropicFold(), started(0, type="text", text="half")),
        (OpenAIFold(), chunk(content="half")),
    ]
    for fold, event in folds:
        with pytest.raises(OutliveError) as caught:
            run(fold, [event])
        assert caught.value.code == "model.outage"
        assert fold.is_underway


def test_redacted_thinking_is_kept_in_its_place() -> None:
    events = [
        started(0, type="redacted_thinking", data="opaque"),
        started(1, type="text", text="Hi "),
        started(2, type="thinking", thinking="Hm", signature=""),
        grown(2, type="signature_delta", signature="sig"),
        started(3, type="text", text="there"),
        started(4, type="tool_use", id="t", name="shell", input={"n": 1}),
        STOP,
    ]
    _, answer = run(AnthropicFold(), events)
    assert answer.text == "Hi there"
    assert answer.tool_calls[0].arguments == {"n": 1}
    assert answer.blocks == (
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "length": 3},
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "text", "length": 5},
        {"type": "tool_use", "id": "t"},
    )


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "max_completion_tokens"),
        ("mine.openai.azure.com", "max_completion_tokens"),
        ("localhost", "max_tokens"),
        ("notopenai.com", "max_tokens"),
    ],
)
def test_the_limit_of_tokens_has_the_name_that_the_server_knows(host: str, name: str) -> None:
    assert limit_name(host) == name
