"""Chat Completions of OpenAI, the language that most compatible servers speak: a request's body, and the fold of its
stream. Pure, and without the SDK.

Compatible servers differ in what they leave out. Taken as they come: calls without an index or an id, a `stop` behind
calls, no usage, reasoning in a field of its own. Such reasoning goes back with the calls it led to, where the same
model is asked again: some servers insist on it, and others only refuse it elsewhere.
"""

import base64
import json
from collections.abc import Iterator, Mapping
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
    Usage,
)

PROVIDER = "openai"
REASONING_FIELDS = ("reasoning_content", "reasoning")  # of compatible servers; OpenAI itself shows none here
_OWN_HOSTS = ("openai.com", "openai.azure.com")

Block = dict[str, Any]


def limit_name(host: str) -> str:
    """What the limit of tokens is called: OpenAI has renamed it, most compatible servers know the old name alone."""
    is_own = any(host == own or host.endswith(f".{own}") for own in _OWN_HOSTS)
    return "max_completion_tokens" if is_own else "max_tokens"


def request_body(request: ModelRequest, host: str = "") -> dict[str, Any]:
    """The parameters of `chat.completions.create`."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request),
        "stream_options": {"include_usage": True},
        limit_name(host): request.max_tokens,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    return body


def _messages(request: ModelRequest) -> list[Block]:
    messages: list[Block] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for group in grouped(request.messages):
        if isinstance(group, Said):
            messages.extend(_said(group))
        else:
            messages.append(_answered(group, request.model))
    return messages


def _said(said: Said) -> Iterator[Block]:
    for result in said.results:
        yield {"role": "tool", "tool_call_id": result.call, "content": result.output}
    for result in said.results:
        if result.images:  # a tool's message holds text alone
            yield {"role": "user", "content": _parts(f"<note>What {result.name} showed:</note>", result.images)}
    for message in said.words:
        images = getattr(message, "images", ())
        yield {"role": "user", "content": _parts(words_of(message), images) if images else words_of(message)}


def _parts(text: str, images: tuple[Image, ...]) -> list[Block]:
    parts: list[Block] = [{"type": "text", "text": text}] if text.strip() else []
    for image in images:
        url = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _answered(message: AssistantMessage, model: str) -> Block:
    answered: Block = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        answered["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
        if message.model == f"{PROVIDER}:{model}":
            answered.update(_reasoning(message))
    return answered


def _reasoning(message: AssistantMessage) -> Iterator[tuple[str, str]]:
    for block in message.blocks:
        match block:
            case {"type": "reasoning", "field": str(name), "text": str(text)} if name in REASONING_FIELDS:
                yield name, text


_STOPS: Mapping[str, StopReason] = {
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAIFold:
    """Chunks of a completion, as plain dictionaries, to pieces."""

    def __init__(self) -> None:
        self._growth = Growth(PROVIDER)
        self._reasoning = Spelling()
        self._reasoning_field = ""
        self._calls: list[GrowingCall] = []
        self._place: dict[int, GrowingCall] = {}  # by the server's index: the newest call there
        self._stop: str | None = None
        self._was_refused = False
        self._usage: Mapping[str, Any] = {}

    @property
    def is_underway(self) -> bool:
        return self._growth.is_underway or bool(self._calls)

    def take(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage
        match event:
            case {"choices": [{"delta": dict(delta), **choice}, *_]}:
                yield from self._grow(delta)
                if isinstance(stop := choice.get("finish_reason"), str):
                    self._stop = stop
            case {"choices": []}:
                pass
            case {"choices": [{"finish_reason": str(stop)}, *_]}:  # a last chunk may have no delta
                self._stop = stop
            case _:
                raise garbled(PROVIDER, "a chunk without choices")

    def _grow(self, delta: Mapping[str, Any]) -> Iterator[Piece]:
        for name in REASONING_FIELDS:
            if isinstance(text := delta.get(name), str) and text:
                self._reasoning_field = name
                yield from self._growth.think(text, self._reasoning)
                break  # a server that sends both means the same
        if isinstance(text := delta.get("content"), str):
            yield from self._growth.say(text)
        if isinstance(text := delta.get("refusal"), str) and text:
            self._was_refused = True
            yield from self._growth.say(text)
        match delta.get("tool_calls"):
            case None:
                pass
            case list(calls):
                for call in calls:
                    yield from self._grow_call(call)
            case _:
                raise garbled(PROVIDER, "tool_calls that are no list")

    def _grow_call(self, delta: object) -> Iterator[Piece]:
        match delta:
            case {"function": dict(function), **rest}:
                pass
            case _:
                raise garbled(PROVIDER, "a tool call without a function")
        index, id, name, text = rest.get("index"), rest.get("id"), function.get("name"), function.get("arguments")
        call = self._place.get(index) if isinstance(index, int) else None
        if call is None or (isinstance(id, str) and id and id != call.id):
            call = GrowingCall(id if isinstance(id, str) else "", name if isinstance(name, str) else "")
            self._calls.append(call)
            self._growth.count_calls(len(self._calls))
            self._place[index if isinstance(index, int) else -len(self._calls)] = call
        elif isinstance(name, str) and not call.name:
            call.name = name
        match text:
            case str():
                self._growth.count(text)
                call.take(text)
                yield ArgumentsDelta(text)
            case dict():
                call.given = text

    def answer(self) -> Answer:
        if self._stop is None:
            raise OutageError("model.outage", f"{PROVIDER} ended its answer in the middle.", provider=PROVIDER)
        stop = "refusal" if self._was_refused else _STOPS.get(self._stop, "end_turn")
        calls = with_ids_of_their_own(
            [call.finished(is_cut=stop == "max_tokens" and call is self._calls[-1]) for call in self._calls]
        )
        if calls and stop == "end_turn":
            stop = "tool_use"
        blocks: tuple[JsonValue, ...] = ()
        if reasoning := str(self._reasoning):
            blocks = ({"type": "reasoning", "field": self._reasoning_field, "text": reasoning},)
        return Answer(str(self._growth.text), calls, blocks, _usage(self._usage), stop)


def _count(counts: object, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) and count >= 0 else 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    read, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    return Usage(
        input_tokens=max(0, _count(usage, "prompt_tokens") - read - written),
        output_tokens=_count(usage, "completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
