"""What every request passes before a route sees it: the right host, no foreign page, a known token, a body of bounds.

Plain ASGI, in this order:
1. `Host` must be one of ours (421): a page that made its name point here (DNS rebinding) still says its own name.
2. `Origin`, if there is one, must be our own (403): a foreign page in somebody's browser cannot use us.
3. A bearer token that we know (401). There is no switch to turn this off. A page in a browser cannot set headers on a
   WebSocket: for a terminal's it may offer the token as a subprotocol, as Kubernetes takes it. It is never echoed.
   A connection that was taken over ends soon after its token was revoked.
4. Who may only observe may only look (403): see `rights`.
5. The body is read here, whole, within bounds of size and time, and waits in the scope as `outlive.body`; but for the
   files and the ports of machines, whose bodies pass through in pieces and may be of any size.
"""

import base64
import binascii
import re

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlive.api.errors import to_answer, to_response
from outlive.api.parts import ApiParts
from outlive.api.rights import check_rights
from outlive.api.websocket import asks_for_websocket, offered_protocols
from outlive.base import (
    DeadlineError,
    DeniedError,
    ExhaustedError,
    InvalidError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
)
from outlive.governance import Principals

BODY_LIMIT = 16 * 1024 * 1024
BLOB_PATH = "/v1/blobs"  # takes bytes as they are, not JSON: there a body may be as large as what is read
READ_LIMIT = 64 * 1024 * 1024  # of a body that is too large, this much is read before it is answered
BUFFERED_LIMIT = 256 * 1024 * 1024  # of all bodies at once
PUBLIC = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json"})

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_STREAMED = re.compile(r"/v1/machines/[^/]*/(?:files|ports)/")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)")
# Of no other WebSocket: what a preview is asked is passed on to the machine, headers included.
_ATTACH = re.compile(r"/v1/terminals/[^/]*/attach")
_BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."


class Gate:
    def __init__(self, app: ASGIApp, parts: ApiParts) -> None:
        self._app = app
        self._parts = parts
        self.buffered = 0  # bytes of bodies that are held now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        room = _Room(self)
        try:
            refusal = await self._admit(scope, receive, room)
            if refusal is None:
                await self._pass_on(scope, receive, send)
            else:
                await refusal(scope, receive, send)
        except _SenderLeft:
            pass  # while it sent; nobody is there to be told
        finally:
            room.give_back()

    async def _admit(self, scope: Scope, receive: Receive, room: "_Room") -> Response | None:
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            if not (self._parts.is_loopback and scope["path"] in PUBLIC):
                principal = await self._parts.principals.authenticate(token_of(scope))
                check_rights(principal, scope["method"], scope["path"], is_upgrade="upgrade" in headers)
                scope["outlive.principal"] = principal
            if scope["method"] in _WITH_BODY and not _STREAMED.match(scope["path"]):
                scope["outlive.body"] = await self._read(
                    receive, room, READ_LIMIT if scope["path"] == BLOB_PATH else BODY_LIMIT
                )
        except _TooSlowError as error:
            # Nothing comes any more: there is nobody to keep the connection for.
            return to_response(to_answer(error), ("connection", "close"))
        except OutliveError as error:
            return to_response(to_answer(error))
        return None

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "outlive.principal" not in scope or "upgrade" not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_when_revoked, scope, group.cancel_scope)
            await self._app(scope, receive, send)
            group.cancel_scope.cancel()

    async def _end_when_revoked(self, scope: Scope, serving: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._parts.recheck_s)
            if not await is_still_known(scope, self._parts.principals):
                serving.cancel()
                return

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        name = re.sub(r":[0-9]*\Z", "", host)
        if host not in self._parts.allowed_hosts and name not in self._parts.allowed_hosts:
            raise InvalidError("request.misdirected", "This server does not go by the name in the Host header.")

    def _check_origin(self, headers: Headers) -> None:
        host = headers["host"].lower()
        for origin in headers.getlist("origin"):
            if origin.lower() not in (f"http://{host}", f"https://{host}"):
                raise DeniedError("request.foreign_origin", "Pages of another origin may not use this server.")

    async def _read(self, receive: Receive, room: "_Room", limit: int) -> bytes:
        # An answer that comes while the body is still being sent reaches its sender only if the connection stays open:
        # closing it with bytes unread resets it. So the server below us reads the rest and throws it away.
        deadline = anyio.current_time() + self._parts.body_deadline_s
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive(receive, deadline)
            if message["type"] == "http.disconnect":
                raise _SenderLeft()
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > READ_LIMIT:
                raise _too_large(limit)
            if size > limit:
                chunks.clear()
                room.give_back()
            else:
                room.take(len(chunk))
                chunks.append(chunk)
            if not message.get("more_body", False):
                break
        if size > limit:
            raise _too_large(limit, size=size)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _receive(self, receive: Receive, deadline: float) -> Message:
        left = min(self._parts.body_silence_s, deadline - anyio.current_time())
        with anyio.move_on_after(max(0.0, left)):
            return await receive()
        raise _TooSlowError("request.too_slow", "The body of the request came too slowly; send it again.")


class _Room:
    """How much of the room for all bodies one request takes, until it is answered."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._size = 0

    def take(self, size: int) -> None:
        if self._gate.buffered + size > BUFFERED_LIMIT:
            raise UnavailableError("request.no_room", "Too many large requests at once; try again.", retry_after_s=1)
        self._gate.buffered += size
        self._size += size

    def give_back(self) -> None:
        self._gate.buffered -= self._size
        self._size = 0


class _SenderLeft(Exception):  # noqa: N818  not an error
    pass


class _TooSlowError(DeadlineError):
    """It is the sender who was late, not a part of ours."""


def _too_large(limit: int, **facts: int) -> ExhaustedError:
    detail = f"A body may have {limit // 1024 // 1024} MiB; send less, or in pieces."
    return ExhaustedError("request.too_large", detail, limit=limit, **facts)


async def is_still_known(scope: Scope, principals: Principals) -> bool:
    """Whether the token that a request came with is still somebody's. A database that is away revokes nobody's."""
    try:
        await principals.authenticate(token_of(scope))
    except UnauthenticatedError:
        return False
    except OutliveError:
        return True
    return True


def token_of(scope: Scope) -> str:
    """The token that a request shows."""
    headers = Headers(scope=scope)
    given = headers.getlist("authorization")
    if not given and (offered := _offered_token(scope, headers)) is not None:
        return offered
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if match is None:
        raise UnauthenticatedError("token.missing", "Send the token as `Authorization: Bearer TOKEN`.")
    return match[1]


def _offered_token(scope: Scope, headers: Headers) -> str | None:
    if scope["method"] != "GET" or not _ATTACH.fullmatch(scope["path"]) or not asks_for_websocket(headers):
        return None
    offered = [each for each in offered_protocols(headers) if each.startswith(_BEARER_PROTOCOL)]
    if len(offered) != 1:
        return None
    encoded = offered[0].removeprefix(_BEARER_PROTOCOL)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
