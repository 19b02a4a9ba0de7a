"""Calls to the API: each has a deadline and is made again while that may help. Httpx's errors stop in this file.

A POST carries a key that this client made. Whatever happens to the connection, the call is made again with the same
key, so the server does the thing once and answers the same.
"""

import json
import secrets
import ssl
import time
from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

import anyio
import httpx

from outlive.base import (
    BrokenError,
    ConflictError,
    DeadlineError,
    InvalidError,
    OutliveError,
    UnavailableError,
    new_operation_id,
)
from outlive.client.endpoint import Endpoint
from outlive.client.problems import error_of
from outlive.client.wire import decode

Method = Literal["GET", "POST", "PUT", "DELETE"]
Params = Mapping[str, str | int | bool]

DEADLINE_S = 60.0  # of a call, with all its attempts
PATIENCE_S = 10.0  # for an API that cannot be reached at all
CONNECT_S = 5.0
UNTRUSTED = "api.untrusted"
_POOL = httpx.Limits(max_connections=None, max_keepalive_connections=16)  # a follower holds a connection all its life
_jitter = secrets.SystemRandom()


class Backoff:
    """How long to wait before the next attempt: 0.1 s, doubled up to 5 s, each time a random part of it."""

    SHORTEST_S = 0.1
    LONGEST_S = 5.0

    def __init__(self) -> None:
        self._next_s = self.SHORTEST_S

    def reset(self) -> None:
        self._next_s = self.SHORTEST_S

    def wait_s(self, at_least_s: float | None = None) -> float:
        wait_s = max(self.SHORTEST_S, _jitter.uniform(self._next_s / 2, self._next_s))
        self._next_s = min(self._next_s * 2, self.LONGEST_S)
        return max(wait_s, at_least_s or 0.0)


class Transport:
    def __init__(
        self, find: Callable[[], Endpoint], *, deadline_s: float = DEADLINE_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._find = find
        self._deadline_s = deadline_s
        self._patience_s = min(patience_s, deadline_s)
        self._endpoint = find()
        self._pools: dict[bool, httpx.AsyncClient] = {}
        self._is_closed = False

    @property
    def url(self) -> str:
        return self._endpoint.url

    @property
    def endpoint(self) -> Endpoint:
        """As it was found last; `look_again` may find another one."""
        return self._endpoint

    async def aclose(self) -> None:
        self._is_closed = True
        for pool in self._pools.values():
            await pool.aclose()

    async def call(
        self,
        method: Method,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        params: Params | None = None,
        *,
        deadline_s: float | None = None,
        attempt_s: float | None = None,
        has_key: bool = True,
        key: str | None = None,
    ) -> dict[str, Any]:
        """The answer's JSON object, empty if there is none. Raises the server's error, or `unavailable`, `deadline`.

        A `body` of bytes is sent as it is, any other as JSON. `deadline_s` and `attempt_s` for what takes its time;
        without `has_key` the body itself says what is the same. `key`: the caller's own `Idempotency-Key`.
        """
        started = time.monotonic()
        all_s = self._deadline_s if deadline_s is None else deadline_s
        each_s = all_s / 3 if attempt_s is None else attempt_s
        is_keyed = key is not None or (method == "POST" and has_key)
        headers = {"Idempotency-Key": key or new_operation_id()} if is_keyed else {}
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body
        if content is not None:
            headers["Content-Type"] = "application/json" if isinstance(body, Mapping) else "application/octet-stream"
        backoff = Backoff()
        while True:
            left_s = all_s - (time.monotonic() - started)
            try:
                return await self._attempt(method, path, headers, content, params, min(left_s, each_s))
            except OutliveError as error:
                wait_s = backoff.wait_s(error.retry_after_s)
                limit_s = self._patience_s if error.code == "api.unreachable" else all_s
                if not may_heal(error) or time.monotonic() - started + wait_s >= limit_s:
                    raise
            await anyio.sleep(wait_s)
            self.look_again()

    async def open_stream(
        self,
        path: str,
        params: Params,
        headers: Mapping[str, str],
        silence_s: float,
        *,
        body: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """An answer whose body is still to come; whoever gets it closes it. Reads fail after `silence_s` of silence.
        With a `body` it is a POST."""
        timeout = httpx.Timeout(CONNECT_S, read=silence_s, write=CONNECT_S)
        told = {**headers, "Accept-Encoding": "identity"}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            told["Content-Type"] = "application/json"
        request = self._request("GET" if content is None else "POST", path, told, content, params, timeout)
        with Translated(self.url):
            response = await self._http.send(request, stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                    raise _refusal(response)
            except BaseException:
                await response.aclose()
                raise
        return response

    async def upload(self, path: str, pieces: AsyncIterable[bytes], params: Params, silence_s: float) -> dict[str, Any]:
        """Put a stream of bytes, once: it cannot be sent again."""
        timeout = httpx.Timeout(CONNECT_S, read=silence_s, write=silence_s)
        request = self._request("PUT", path, {}, pieces, params, timeout)
        with Translated(self.url):
            response = await self._http.send(request)
        if not response.is_success:
            raise _refusal(response)
        return decode(response.content)

    def look_again(self) -> None:
        """Take the endpoint from its file again: a stack that was restarted may be at another port."""
        if self._endpoint.is_from_file:
            # It is being restarted, or is gone: then the next attempt says so with the old address.
            with suppress(OutliveError):
                self._endpoint = self._find()

    @property
    def _http(self) -> httpx.AsyncClient:
        """The connections to such an endpoint as was found last."""
        is_plain_loopback = self._endpoint.is_loopback and self._endpoint.url.startswith("http:")
        if is_plain_loopback not in self._pools:
            if self._is_closed:
                raise ConflictError("client.closed", "This client is closed: make a new one.")
            self._pools[is_plain_loopback] = _open_pool(is_plain_loopback=is_plain_loopback)
        return self._pools[is_plain_loopback]

    async def _attempt(
        self,
        method: Method,
        path: str,
        headers: Mapping[str, str],
        content: bytes | None,
        params: Params | None,
        within_s: float,
    ) -> dict[str, Any]:
        request = self._request(method, path, headers, content, params, httpx.Timeout(within_s, connect=CONNECT_S))
        with Translated(self.url), anyio.fail_after(within_s):
            response = await self._http.send(request)
        if not response.is_success:
            raise _refusal(response)
        return decode(response.content) if response.content else {}

    def _request(
        self,
        method: Method,
        path: str,
        headers: Mapping[str, str],
        content: bytes | AsyncIterable[bytes] | None,
        params: Params | None,
        timeout: httpx.Timeout,
    ) -> httpx.Request:
        headers = {"Accept": "application/json", **headers}
        if self._endpoint.token is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.token}"
        return self._http.build_request(
            method, f"{self.url}/v1{path}", headers=headers, content=content, params=params, timeout=timeout
        )


def _open_pool(*, is_plain_loopback: bool) -> httpx.AsyncClient:
    """A proxy of the environment is for the world outside, not for this host's own loopback. With TLS the environment
    also says whom to trust; without, nobody is: reading all authorities costs a small command a tenth of its time."""
    if is_plain_loopback:
        return httpx.AsyncClient(limits=_POOL, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    return httpx.AsyncClient(limits=_POOL)


class Translated:
    """Inside it httpx's exceptions become ours."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        match error:
            case httpx.ConnectError() if (fault := tls_fault(error)) is not None:
                raise UnavailableError(UNTRUSTED, say_tls(self._url, fault)) from error
            case httpx.ConnectError() | httpx.ConnectTimeout():
                raise UnavailableError(
                    "api.unreachable", f"Nobody answers at {self._url}. Is the stack up? Run `outlive up`."
                ) from error
            case httpx.TimeoutException() | TimeoutError():
                raise DeadlineError("api.slow", f"{self._url} did not answer in time.") from error
            case httpx.UnsupportedProtocol() | httpx.LocalProtocolError() | httpx.InvalidURL():
                raise InvalidError("call.malformed", f"This cannot be asked of {self._url}: {error}") from error
            case httpx.TransportError() | httpx.StreamError():
                raise UnavailableError("api.cut_off", f"The connection to {self._url} was lost.") from error
            case httpx.HTTPError():
                raise BrokenError("api.garbled", f"The answer of {self._url} makes no sense: {error}") from error


def tls_fault(error: BaseException) -> ssl.SSLError | None:
    """What TLS had against the connection, if that is why there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def say_tls(url: str, fault: ssl.SSLError) -> str:
    if not isinstance(fault, ssl.SSLCertVerificationError):
        return f"{url} answers, but no TLS connection comes about ({fault.reason}). Does it speak HTTPS at all?"
    return (
        f"The certificate of {url} is not trusted: {fault.verify_message.rstrip('.')}. If its authority is one of your "
        "own, name its file in SSL_CERT_FILE; call the server by a name that is in the certificate."
    )


def may_heal(error: OutliveError) -> bool:
    """Whether the same call may work later. `exhausted` only if the server says when: most bounds stay reached."""
    if error.code == UNTRUSTED:
        return False  # until somebody changes something
    if error.code == "idempotency.in_flight":
        return True
    return error.is_retryable or (error.kind == "exhausted" and error.retry_after_s is not None)


def _refusal(response: httpx.Response) -> OutliveError:
    return error_of(response.status_code, response.content, response.headers.get("Retry-After"))
