"""The Messages API of Anthropic, from the provider's side: what it takes, how it answers. Pure.

It is as strict as the real one: a request that would be refused there is refused here, in the same words.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from outlive.testing.pretend_provider.frames import Asked, Frame, Wrong, context_limit, is_note, tokens_of
from outlive.testing.pretend_provider.script import Item, Planned, in_pieces

PREFIX = "toolu"
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


def bad(message: str) -> Wrong:
    return Wrong(400, "invalid_request_error", message)


def error_body(wrong: Wrong) -> dict[str, Any]:
    details = {"details": {"error_code": wrong.code}} if wrong.code else {}
    return {"type": "error", "error": {"type": wrong.type, "message": wrong.message, **details}}


def signature_of(thinking: str) -> str:
    return hashlib.sha256(f"pretend {thinking}".encode()).hexdigest()


def read_request(body: dict[str, Any], headers: dict[str, str]) -> Asked | Wrong:
    key = headers.get("x-api-key") or headers.get("authorization", "")
    if not key or "wrong" in key:
        return Wrong(401, "authentication_error", f"invalid x-api-key {key}")
    if "anthropic-version" not in headers:
        return bad("anthropic-version: header is required")
    model = body.get("model", "")
    if not isinstance(model, str) or model.startswith("missing"):
        return Wrong(404, "not_found_error", f"model: {model}")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        return bad("max_tokens: Field required")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return bad("messages: at least one message is required")
    if wrong := _wrong_with(messages) or _wrong_with_marks(body):
        return bad(wrong)
    tokens = tokens_of([body.get("system"), body.get("tools"), messages])
    if (limit := context_limit(model)) and tokens > limit:
        return bad(f"prompt is too long: {tokens} tokens > {limit} maximum")
    read, written = _cached(body)
    return Asked(model, tuple(_items(messages)), max(0, tokens - read - written), read, written)


def _blocks(message: Any) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _wrong_with(messages: list[Any]) -> str | None:
    if messages[0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    open_calls: list[str] = []
    for n, message in enumerate(messages):
        blocks = _blocks(message)
        if not blocks:
            return f"messages.{n}: all messages must have non-empty content"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "user" and sorted(results) != sorted(open_calls):
            return (
                f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{open_calls} but {results}"
            )
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            return f"messages.{n}: tool_result blocks must come first"
        if open_calls and message["role"] == "assistant":
            return f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if wrong := next((w for block in blocks if (w := _wrong_with_block(block))), None):
            return f"messages.{n}: {wrong}"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return "messages: the last call has no result" if open_calls else None


def _wrong_with_block(block: dict[str, Any]) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return None if text.strip() else "text content blocks must be non-empty"
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            if "cache_control" in block:
                return "thinking blocks cannot have cache_control"
            return None if signature == signature_of(text) else "Invalid `signature` in `thinking` block"
        case {"type": "tool_use", "id": str(id), "name": str(), "input": dict()}:
            return None if _CALL_ID.fullmatch(id) else "tool_use.id: String should match pattern"
        case {"type": "tool_result", "content": list() | str()}:
            return None
        case {"type": "image", "source": {"type": "base64", "media_type": str(), "data": str()}}:
            return None
        case {"type": "redacted_thinking", "data": str()}:
            return None
    return f"a block of unknown shape: {json.dumps(block)[:200]}"


def _marked(body: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Every block in the order of the cache, and whether it is marked."""
    everything = [*body.get("tools", []), *(body["system"] if isinstance(body.get("system"), list) else [])]
    for message in body["messages"]:
        everything.extend(_blocks(message))
    for block in everything:
        yield {name: value for name, value in block.items() if name != "cache_control"}, "cache_control" in block


def _wrong_with_marks(body: dict[str, Any]) -> str | None:
    marks = sum(is_marked for _, is_marked in _marked(body))
    return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}." if marks > 4 else None


def _cached(body: dict[str, Any]) -> tuple[int, int]:
    """Tokens read from the cache and written to it: up to the last mark but one, and from there to the last."""
    totals, so_far = [0], 0
    for block, is_marked in _marked(body):
        so_far += tokens_of(block)
        if is_marked:
            totals.append(so_far)
    return (totals[-2], totals[-1] - totals[-2]) if len(totals) > 1 else (0, 0)


def _items(messages: list[Any]) -> Iterator[Item]:
    for message in messages:
        blocks = _blocks(message)
        if message["role"] == "assistant":
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            yield Item("assistant", text, tuple(block["id"] for block in blocks if block["type"] == "tool_use"))
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                yield Item("result", text)
            elif block["type"] == "text" and not is_note(block["text"]):
                yield Item("user", block["text"])


def _event(data: dict[str, Any], *, is_piece: bool = False) -> Frame:
    return Frame(f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode(), is_piece)


def error_event(type: str, message: str) -> Frame:
    return _event({"type": "error", "error": {"type": type or "api_error", "message": message or "Internal error"}})


def ping() -> Frame:
    return _event({"type": "ping"})


def _block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[Frame]:
    yield _event({"type": "content_block_start", "index": index, "content_block": start})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta}, is_piece=True)
    yield _event({"type": "content_block_stop", "index": index})


def encode(answer: Planned, asked: Asked) -> Iterator[Frame]:
    usage = {
        "input_tokens": asked.input_tokens,
        "cache_read_input_tokens": asked.cache_read_tokens,
        "cache_creation_input_tokens": asked.cache_write_tokens,
        "output_tokens": 1,
    }
    message = {"id": "msg_pretend", "type": "message", "role": "assistant", "model": asked.model, "content": []}
    yield _event({"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}})
    yield ping()
    index = 0
    if answer.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in in_pieces(answer.thinking)]
        deltas.append({"type": "signature_delta", "signature": signature_of(answer.thinking)})
        yield from _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in in_pieces(answer.text)]
        yield from _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for call in answer.calls:
        middle = len(call.arguments) // 2
        pieces = ["", call.arguments[:middle], call.arguments[middle:]]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield from _block(index, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas)
        index += 1
    stop = answer.stop or ("tool_use" if answer.calls else "end_turn")
    spent = tokens_of(answer.thinking + answer.text + "".join(call.arguments for call in answer.calls))
    yield _event({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": spent}})
    yield _event({"type": "message_stop"})
