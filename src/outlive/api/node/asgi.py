"""Requests and answers of a node's HTTP, as plain ASGI has them: what all of its handlers share."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs

import anyio
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Send

from outlive.api.errors import to_answer
from outlive.base import ExhaustedError, InvalidError, MachineId, OutliveError, UnavailableError
from outlive.governance import Answer
from outlive.machine.caller import closing
from outlive.machine.door import Output
from outlive.machine.node_wire import JSON_LIMIT, effect_line, output_line, problem_line
from outlive.machine.status import Effect

_JSON = (b"content-type", b"application/json")
_LINES = [(b"content-type", b"application/x-ndjson")]

M = TypeVar("M", bound=BaseModel)


class Call(NamedTuple):
    """One request about one generation of one machine."""

    machine: MachineId
    generation: int
    rest: tuple[str, ...]  # of the path
    query: Mapping[str, str]
    receive: Receive
    send: Send


# ── requests ──


def parse_query(raw: bytes) -> dict[str, str]:
    try:
        given = parse_qs(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError:
        raise InvalidError("request.malformed", "The query cannot be read.") from None
    return {name: values[-1] for name, values in given.items()}


def to_number(query: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidError("request.invalid", f"{name} is not a number.")
    return int(text)


async def read_model(call: Call, model: type[M]) -> M:
    raw = await read_whole(call.receive, JSON_LIMIT)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidError("request.invalid", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


async def read_whole(receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in body_pieces(receive):
        size += len(piece)
        if size > limit:
            raise ExhaustedError("request.too_large", f"A body may have {limit} bytes here.", limit=limit)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def body_pieces(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UnavailableError("request.cut_off", "The request ended before its body did.")
        if body := message.get("body", b""):
            yield body
        if not message.get("more_body", False):
            return


@asynccontextmanager
async def while_there(receive: Receive) -> AsyncIterator[None]:
    """What is inside is cancelled when the caller leaves. Only after the body was read."""
    failed: OutliveError | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_when_left, receive, group.cancel_scope)
        try:
            yield
        except OutliveError as error:
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


# ── answers ──


async def send_json(send: Send, body: bytes) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_answer(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_lines(call: Call, follow: AsyncIterator[Output | Effect]) -> None:
    """Output as it comes, then the effect. A refusal is an answer of its own, after the first line one more line."""
    is_started = False

    async def say(line: bytes, *, is_last: bool = False) -> None:
        nonlocal is_started
        if not is_started:
            await call.send({"type": "http.response.start", "status": 200, "headers": _LINES})
            is_started = True
        await call.send({"type": "http.response.body", "body": line, "more_body": not is_last})

    async with closing(follow) as pieces, while_there(call.receive):
        try:
            async for piece in pieces:
                is_last = isinstance(piece, Effect)
                await say(effect_line(piece) if isinstance(piece, Effect) else output_line(piece), is_last=is_last)
        except OutliveError as error:
            if not is_started:
                raise
            await say(problem_line(to_answer(error).body), is_last=True)
