"""HTTP towards MCP servers: only to hosts that the settings list, only where they were judged to lead, and so much.

The rules are those of egress (`governance.egress`): a name says nothing about where it leads, so the addresses behind
it are judged too, and the connection is made to one of exactly those.

What is sent is counted as it comes, so it may not be packed: a little of that becomes as much as it likes.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx2

from outlive.base import DeniedError, ExhaustedError, OutliveError, UnavailableError
from outlive.governance.egress import Address, Allow, Deny, EgressRules, Name, decide, decide_address, parse_host
from outlive.governance.egress_dial import Dialer
from outlive.loop.tools.mcp.client import ANSWER_LIMIT

_LOOK_UP_WITHIN_S = 10.0
_CONNECT_S = 10.0
_ADDRESSES = 3  # that are tried


class Place(NamedTuple):
    """Where a server was judged to be."""

    host: str
    port: int
    addresses: tuple[Address, ...]


async def judge(url: str, rules: EgressRules, dialer: Dialer) -> Place:
    """`mcp.denied` (denied) if it may not be asked, `mcp.broken` (unavailable) if it leads nowhere."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    text = f"[{host}]" if ":" in host else host
    verdict = decide(rules, text, port)
    if isinstance(verdict, Deny):
        raise _denied(verdict, f"{text}:{port}")
    parsed = parse_host(text)
    assert parsed is not None
    found = await _resolve(parsed, dialer) if isinstance(parsed, Name) else [parsed]
    verdicts = [(address, decide_address(rules, address, port)) for address in found]
    allowed = tuple(address for address, each in verdicts if isinstance(each, Allow))
    if not allowed:
        refused = [each for _, each in verdicts if isinstance(each, Deny)]
        raise _denied(refused[0], f"{text}:{port}")
    return Place(host, port, allowed[:_ADDRESSES])


async def _resolve(name: Name, dialer: Dialer) -> list[Address]:
    try:
        with anyio.fail_after(_LOOK_UP_WITHIN_S):
            found = await dialer.resolve(name)
    except TimeoutError:
        raise UnavailableError("mcp.broken", f"nobody said where {name} is.") from None
    except OutliveError as error:
        raise UnavailableError("mcp.broken", f"{name} leads nowhere ({error.message})") from None
    if not found:
        raise UnavailableError("mcp.broken", f"{name} leads nowhere.")
    return found


def _denied(verdict: Deny, where: str) -> DeniedError:
    how = f" The setting mcp.allowed_hosts would have to list {verdict.needed!r}." if verdict.needed else ""
    return DeniedError("mcp.denied", f"MCP servers at {where} may not be asked from here ({verdict.why}).{how}")


class Heard:
    """How a call was answered. `doubt`: what came was no answer to it, so nobody knows whether it was done. The SDK
    makes an error of such things that looks like one of the server's."""

    def __init__(self) -> None:
        self.doubt: str | None = None
        self.is_stream = False


@asynccontextmanager
async def open_http(place: Place, headers: dict[str, str], heard: Heard) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that reaches this place and no other. It waits for answers as long as its caller does."""
    timeout = httpx2.Timeout(_CONNECT_S, read=None)
    transport = _Pinned(place, heard)
    headers = {**headers, "accept-encoding": "identity"}
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout, trust_env=False) as client:
        yield client


def doubt_of(status: int, kind: str, content: bytes) -> str | None:
    """Why this is no answer to a call; None if it is one: a JSON-RPC result, or an error under whatever status."""
    try:
        message = json.loads(content) if kind == "application/json" else None
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict) and isinstance(message.get("id"), int | str | None):
        error = message.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str):
            is_good = status >= 400 or status == 200
        else:
            is_good = status == 200 and isinstance(message.get("result"), dict)
        if is_good:
            return None
    return f"it answered with status {status} and no word of what came of it"


async def _is_call(request: httpx2.Request) -> bool:
    """Ours, so it can be read."""
    return request.method == "POST" and json.loads(await request.aread()).get("method") == "tools/call"


def _kind(answer: httpx2.Response) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Pinned(httpx2.AsyncBaseTransport):
    def __init__(self, place: Place, heard: Heard) -> None:
        self._place = place
        self._heard = heard
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._left = ANSWER_LIMIT

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        if (url.host, port) != (self._place.host, self._place.port):
            raise httpx2.ConnectError("it leads to another place than the one that was judged")
        trouble: httpx2.ConnectError | None = None
        for address in self._place.addresses:
            to = httpx2.Request(
                request.method,
                url.copy_with(host=str(address)),
                headers=request.headers,  # its Host is the name
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                answer = await self._inner.handle_async_request(to)
            except httpx2.ConnectError as error:
                trouble = error
                continue
            return await self._taken(request, answer)
        assert trouble is not None
        raise trouble

    async def _taken(self, request: httpx2.Request, answer: httpx2.Response) -> httpx2.Response:
        packing = answer.headers.get("content-encoding", "identity")
        if packing.strip().lower() != "identity":
            await answer.aclose()
            raise httpx2.DecodingError(f"it answered with something packed ({packing[:50]}), which it was asked not to")
        bounded = _Bounded(answer, self._spend)
        if await _is_call(request):
            self._heard.is_stream = is_stream = _kind(answer) == "text/event-stream" and answer.status_code == 200
            self._heard.doubt = None
            if not is_stream:
                content = b"".join([part async for part in bounded])
                await bounded.aclose()
                self._heard.doubt = doubt_of(answer.status_code, _kind(answer), content)
                return httpx2.Response(answer.status_code, headers=answer.headers, content=content)
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=bounded, extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ExhaustedError("mcp.too_much", f"the server sent more than {ANSWER_LIMIT:,} bytes.")


class _Bounded(httpx2.AsyncByteStream):
    """What a server sends, counted before it is read."""

    def __init__(self, answer: httpx2.Response, spend: Callable[[int], None]) -> None:
        self._answer = answer
        self._spend = spend

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._answer.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for part in stream:
            self._spend(len(part))
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()
