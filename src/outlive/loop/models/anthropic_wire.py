"""The Messages API of Anthropic: a request's body, and the fold of its stream. Pure, and without the SDK.

Thinking goes back exactly as it came, at the place where it stood. So `blocks` of an answer with thinking hold the
whole order: thinking blocks verbatim, text by its length, calls by their id. An answer without thinking needs none.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from outlive.loop.models.answering import GrowingCall, Growth, Spelling, garbled, with_ids_of_their_own
from outlive.loop.models.errors import OutageError
from outlive.loop.models.layout import Said, grouped, words_of
from outlive.loop.models.messages import (
    Answer,
    ArgumentsDelta,
    AssistantMessage,
    Image,
    ModelRequest,
    Piece,
    StopReason,
    ToolCall,
    ToolResultMessage,
    Usage,
)

PROVIDER = "anthropic"
_CACHED: dict[str, JsonValue] = {"type": "ephemeral"}
_NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
_THINKING = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


def request_body(request: ModelRequest) -> dict[str, Any]:
    """The parameters of `messages.create`."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": _messages(request),
    }
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    if request.tools:
        tools: list[Block] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
        tools[-1]["cache_control"] = _CACHED
        body["tools"] = tools
    match request.effort:
        case None:
            pass
        case "none":
            body["thinking"] = {"type": "disabled"}
        case effort:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": effort}
    return body


def _messages(request: ModelRequest) -> list[Block]:
    messages: list[Block] = []
    for group in grouped(request.messages):
        if isinstance(group, Said):
            messages.append({"role": "user", "content": _said(group)})
        else:
            messages.append({"role": "assistant", "content": _answered(group, request.model)})
    # Two marks: what is new now is written to the cache here, and was found there at the last step's mark.
    for message in [message for message in messages if message["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = _CACHED
    return messages


def _said(said: Said) -> list[Block]:
    content = [_result(result) for result in said.results]
    for message in said.words:
        if text := words_of(message).strip():
            content.append({"type": "text", "text": text})
        content.extend(_image(image) for image in getattr(message, "images", ()))
    return content


def _result(result: ToolResultMessage) -> Block:
    content: list[Block] = [{"type": "text", "text": result.output}] if result.output.strip() else []
    content.extend(_image(image) for image in result.images)
    block: Block = {"type": "tool_result", "tool_use_id": _id(result.call), "content": content}
    if result.is_error:
        block["is_error"] = True
    return block


def _image(image: Image) -> Block:
    data = base64.b64encode(image.data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}}


def _id(call: str) -> str:
    """An id that Anthropic takes: a conversation may have come from another provider."""
    return _NO_ID.sub("_", call)


def _tool_use(call: ToolCall) -> Block:
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": call.arguments}


def _answered(message: AssistantMessage, model: str) -> list[Block]:
    blocks = message.blocks if message.model == f"{PROVIDER}:{model}" else ()
    placed = _in_place(message, blocks)
    if placed is not None:
        return placed
    content: list[Block] = [b for b in blocks if isinstance(b, dict) and b.get("type") in _THINKING]
    if message.text.strip():
        content.append({"type": "text", "text": message.text.rstrip()})
    return content + [_tool_use(call) for call in message.tool_calls]


def _in_place(message: AssistantMessage, blocks: Sequence[JsonValue]) -> list[Block] | None:
    """The content as it came; None where text or calls are no longer those that the blocks speak of."""
    content: list[Block] = []
    calls = {call.id: call for call in message.tool_calls}
    start = 0
    for block in blocks:
        match block:
            case {"type": "text", "length": int(length)}:
                if (text := message.text[start : start + length]).strip():
                    content.append({"type": "text", "text": text})
                start += length
            case {"type": "tool_use", "id": str(id)} if id in calls:
                content.append(_tool_use(calls.pop(id)))
            case dict() if block.get("type") in _THINKING:
                content.append(block)
            case _:
                return None
    return content if blocks and start == len(message.text) and not calls else None


@dataclass(slots=True)
class _Growing:
    """One content block of which pieces have come."""

    kind: str
    spelling: Spelling = field(default_factory=Spelling)  # of thinking
    length: int = 0  # of text, in characters
    signature: list[str] = field(default_factory=list)
    call: GrowingCall | None = None
    raw: Block = field(default_factory=dict)


_STOPS: Mapping[str, StopReason] = {
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


class AnthropicFold:
    """Server-sent events, as plain dictionaries, to pieces. Events of unknown types are passed over."""

    def __init__(self) -> None:
        self._growth = Growth(PROVIDER)
        self._blocks: dict[int, _Growing] = {}
        self._usage: dict[str, int] = {}
        self._stop = "end_turn"
        self._is_over = False

    @property
    def is_underway(self) -> bool:
        return bool(self._blocks)

    def take(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        match event:
            case {"type": "message_start", "message": {"usage": dict(usage)}}:
                self._count(usage)
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": str()} as block}:
                yield from self._open(index, dict(block))
            case {"type": "content_block_delta", "index": int(index), "delta": {"type": str()} as delta} if (
                index in self._blocks
            ):
                yield from self._grow(self._blocks[index], delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                if isinstance(stop := delta.get("stop_reason"), str):
                    self._stop = stop
                if isinstance(counts := event.get("usage"), dict):
                    self._count(counts)
            case {"type": "message_stop"}:
                self._is_over = True
            case {"type": "content_block_start" | "content_block_delta" | "message_delta" as kind}:
                raise garbled(PROVIDER, f"a {kind} without its parts")
            case {"type": str()}:
                pass
            case _:
                raise garbled(PROVIDER, "an event without a type")

    def _open(self, index: int, block: Block) -> Iterator[Piece]:
        growing = self._blocks[index] = _Growing(block["type"], raw=block)
        match block:
            case {"type": "tool_use", "id": str(id), "name": str(name)}:
                given = block.get("input")
                growing.call = GrowingCall(id, name, given=given if isinstance(given, dict) else None)
                self._growth.count_calls(sum(1 for other in self._blocks.values() if other.call))
            case {"type": "tool_use"}:
                raise garbled(PROVIDER, "a tool_use without id and name")
            case {"type": "text", "text": str(text)}:
                yield from self._say(growing, text)
            case {"type": "thinking"}:
                if isinstance(signature := block.get("signature"), str):
                    growing.signature.append(signature)
                if isinstance(thinking := block.get("thinking"), str):
                    yield from self._growth.think(thinking, growing.spelling)
            case {"type": "redacted_thinking", "data": str(data)}:
                self._growth.count(data)

    def _grow(self, growing: _Growing, delta: Mapping[str, Any]) -> Iterator[Piece]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                yield from self._say(growing, text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                yield from self._growth.think(text, growing.spelling)
            case {"type": "signature_delta", "signature": str(text)}:
                self._growth.count(text)
                growing.signature.append(text)
            case {"type": "input_json_delta", "partial_json": str(text)} if growing.call is not None:
                self._growth.count(text)
                growing.call.take(text)
                yield ArgumentsDelta(text)
            case {"type": "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta" as kind}:
                raise garbled(PROVIDER, f"a {kind} without its text")

    def _say(self, growing: _Growing, text: str) -> Iterator[Piece]:
        for piece in self._growth.say(text):
            growing.length += len(piece.text)
            yield piece

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Counts are totals so far: the newest holds."""
        self._usage.update({name: count for name, count in usage.items() if isinstance(count, int) and count >= 0})

    def answer(self) -> Answer:
        if not self._is_over:
            raise OutageError("model.outage", f"{PROVIDER} ended its answer in the middle.", provider=PROVIDER)
        in_order = [self._blocks[index] for index in sorted(self._blocks)]
        stop = _STOPS.get(self._stop, "end_turn")
        calls = with_ids_of_their_own(
            [
                block.call.finished(is_cut=stop == "max_tokens" and block is in_order[-1])
                for block in in_order
                if block.call is not None
            ]
        )
        if calls and stop == "end_turn":
            stop = "tool_use"
        usage = Usage(
            input_tokens=self._usage.get("input_tokens", 0),
            output_tokens=self._usage.get("output_tokens", 0),
            cache_read_tokens=self._usage.get("cache_read_input_tokens", 0),
            cache_write_tokens=self._usage.get("cache_creation_input_tokens", 0),
        )
        return Answer(str(self._growth.text), calls, _kept(in_order, calls), usage, stop)


def _kept(in_order: Sequence[_Growing], calls: Sequence[ToolCall]) -> tuple[JsonValue, ...]:
    """What has to go back as it came, with the places of text and calls in between."""
    if not any(block.kind in _THINKING for block in in_order):
        return ()
    kept: list[JsonValue] = []
    waiting = list(calls)
    for block in in_order:
        match block.kind:
            case "thinking":
                kept.append(
                    {"type": "thinking", "thinking": str(block.spelling), "signature": "".join(block.signature)}
                )
            case "redacted_thinking":
                kept.append({"type": "redacted_thinking", "data": block.raw.get("data")})
            case "text":
                kept.append({"type": "text", "length": block.length})
            case "tool_use":
                kept.append({"type": "tool_use", "id": waiting.pop(0).id})
    return tuple(kept)
