"""Chat Completions of OpenAI, from the provider's side: what it takes, how it answers. Pure.

It is as strict as the real one: a request that would be refused there is refused here, in the same words. Thinking is
shown as compatible servers show it, in `reasoning_content`.
"""

import json
from collections.abc import Iterator
from typing import Any

from outlive.testing.pretend_provider.frames import Asked, Frame, Wrong, context_limit, is_note, tokens_of
from outlive.testing.pretend_provider.script import Item, Planned, in_pieces

PREFIX = "call"
_STOPS = {"max_tokens": "length", "refusal": "content_filter"}


def bad(message: str, code: str | None = None) -> Wrong:
    return Wrong(400, "invalid_request_error", message, code)


def error_body(wrong: Wrong) -> dict[str, Any]:
    return {"error": {"message": wrong.message, "type": wrong.type, "param": None, "code": wrong.code}}


def read_request(body: dict[str, Any], headers: dict[str, str]) -> Asked | Wrong:
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key or "wrong" in key:
        return Wrong(401, "invalid_request_error", f"Incorrect API key provided: {key}.", "invalid_api_key")
    model = body.get("model", "")
    if not isinstance(model, str) or model.startswith("missing"):
        message = f"The model `{model}` does not exist or you do not have access to it."
        return Wrong(404, "invalid_request_error", message, "model_not_found")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return bad("'messages' is a required property")
    if wrong := _wrong_with(messages):
        return bad(wrong)
    tokens = tokens_of([body.get("tools"), messages])
    if (limit := context_limit(model)) and tokens > limit:
        message = (
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
        return bad(message, "context_length_exceeded")
    cached = tokens_of(messages[:-1]) if len(messages) > 2 else 0
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Asked(model, tuple(_items(messages)), tokens, min(cached, tokens), wants_usage=wants_usage)


def _wrong_with(messages: list[Any]) -> str | None:
    open_calls: list[str] = []
    for n, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                    "'tool_calls'."
                )
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {open_calls}"
            )
        if role not in ("system", "developer", "user", "assistant"):
            return f"Invalid value: {role!r}. [messages.{n}.role]"
        calls = message.get("tool_calls") or []
        if not message.get("content") and not calls:
            return f"Invalid value for 'content': expected a string, got null. [messages.{n}.content]"
        if any(not isinstance(call["function"]["arguments"], str) for call in calls):
            return f"Invalid type for 'messages[{n}].tool_calls[0].function.arguments': expected a string"
        open_calls = [call["id"] for call in calls]
    return f"tool_call_ids did not have response messages: {open_calls}" if open_calls else None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _items(messages: list[Any]) -> Iterator[Item]:
    for message in messages:
        text = _text(message.get("content"))
        match message["role"]:
            case "assistant":
                yield Item("assistant", text, tuple(call["id"] for call in message.get("tool_calls") or []))
            case "tool":
                yield Item("result", text)
            case "user" if not is_note(text):
                yield Item("user", text)


def _event(data: dict[str, Any], *, is_piece: bool = False) -> Frame:
    return Frame(f"data: {json.dumps(data)}\n\n".encode(), is_piece)


def error_event(type: str, message: str) -> Frame:
    return _event({"error": {"message": message or "The server had an error", "type": type or "server_error"}})


def ping() -> Frame:
    return Frame(b": ping\n\n")


def encode(answer: Planned, asked: Asked) -> Iterator[Frame]:
    head = {"id": "chatcmpl-pretend", "object": "chat.completion.chunk", "created": 0, "model": asked.model}

    def chunk(delta: dict[str, Any], stop: str | None = None, *, is_piece: bool = False) -> Frame:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return _event({**head, "choices": [choice], "usage": None}, is_piece=is_piece)

    yield chunk({"role": "assistant", "content": ""})
    for piece in in_pieces(answer.thinking):
        yield chunk({"reasoning_content": piece}, is_piece=True)
    for piece in in_pieces(answer.text):
        yield chunk({"content": piece}, is_piece=True)
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        middle = len(call.arguments) // 2
        for piece in (call.arguments[:middle], call.arguments[middle:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, is_piece=True)
    stop = _STOPS.get(answer.stop, answer.stop) or ("tool_calls" if answer.calls else "stop")
    yield chunk({}, stop)
    spent = tokens_of(answer.thinking + answer.text + "".join(call.arguments for call in answer.calls))
    usage = {
        "prompt_tokens": asked.input_tokens,
        "completion_tokens": spent,
        "total_tokens": asked.input_tokens + spent,
        "prompt_tokens_details": {"cached_tokens": asked.cache_read_tokens},
    }
    if asked.wants_usage:
        yield _event({**head, "choices": [], "usage": usage})
    yield Frame(b"data: [DONE]\n\n")
