"""What a connection may do before, between and after requests: bounded, answered, and never for ever."""

import http.client
import json
import select
import socket
from collections.abc import Iterator
from contextlib import suppress

import anyio.to_thread
import pytest

from eventually import eventually
from integration.api.stack import TOKEN, Api
from outlive.api import HEADERS_LIMIT
from outlive.processes import http_protocol

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


def _post(api: Api, size: int, headers: dict[str, str]) -> list[tuple[int, str]]:
    """Send a body of `size`, then ask for something else on the same connection. Status and code of both."""
    answers = []
    connection = http.client.HTTPConnection(*api.address, timeout=60)
    try:
        for method, path, body in (("POST", "/v1/conversations", b"x" * size), ("GET", "/healthz", None)):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answers.append((answer.status, json.loads(answer.read()).get("code", "")))
            assert connection.sock is not None  # it was not closed in between
    finally:
        connection.close()
    return answers


@pytest.mark.parametrize("size", [17 * MIB, 65 * MIB, 100 * MIB])
async def test_the_sender_of_a_body_that_is_too_large_hears_why(api: Api, size: int) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    answers = await anyio.to_thread.run_sync(_post, api, size, headers)
    assert answers == [(413, "request.too_large"), (200, "")]


async def test_the_sender_of_a_large_body_without_a_token_hears_why(api: Api) -> None:
    answers = await anyio.to_thread.run_sync(_post, api, 100 * MIB, {})
    assert answers == [(401, "token.missing"), (200, "")]


def _head(api: Api, *lines: str, path: str = "/v1/conversations") -> bytes:
    host = f"{api.address[0]}:{api.address[1]}"
    return "\r\n".join([f"POST {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


def _talk(api: Api, first: bytes, then: bytes = b"", times: int = 0) -> tuple[bytes, int]:
    """Send, as long as it is heard, and read until the end. What came back, and how much was sent."""
    sent, received = 0, b""
    with socket.create_connection(api.address, timeout=20) as connection:
        with suppress(ConnectionError, BrokenPipeError):
            for piece in _pieces(first, then, times):
                connection.sendall(piece)
                sent += len(piece)
                if select.select([connection], [], [], 0)[0]:  # before a reset can take it away
                    received += connection.recv(65536)
        with suppress(ConnectionError):
            while chunk := connection.recv(65536):
                received += chunk
    return received, sent


def _pieces(first: bytes, then: bytes, times: int) -> Iterator[bytes]:
    yield first
    for _ in range(times):
        yield then


def _problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert int(head.split()[1]) == problem["status"]
    return problem["status"], problem["code"]


async def test_a_body_that_never_ends_is_answered_and_then_cut_off(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "DISCARD_LIMIT", 8 * MIB)
    head = _head(api, f"Authorization: Bearer {TOKEN}", "Transfer-Encoding: chunked")
    piece = b"100000\r\n" + b"x" * MIB + b"\r\n"
    answer, sent = await anyio.to_thread.run_sync(_talk, api, head, piece, 1000)
    assert _problem(answer) == (413, "request.too_large")
    assert 64 * MIB < sent < 100 * MIB
    assert (await api.http.get("/v1/conversations")).json()["items"] == []


async def test_a_refused_body_that_stops_coming_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "DISCARD_S", 0.2)
    answer, _ = await anyio.to_thread.run_sync(_talk, api, _head(api, "Content-Length: 1000") + b"x", b"x", 3)
    assert _problem(answer) == (401, "token.missing")


HEADERS_TOO_LARGE = {
    "one header": ["X-Long: " + "x" * HEADERS_LIMIT],
    "many headers": [f"X-{number}: {number}" for number in range(HEADERS_LIMIT // 8)],
}


@pytest.mark.parametrize("name", HEADERS_TOO_LARGE)
async def test_headers_that_are_too_large_are_refused(api: Api, name: str) -> None:
    answer, _ = await anyio.to_thread.run_sync(_talk, api, _head(api, *HEADERS_TOO_LARGE[name]))
    assert _problem(answer) == (431, "request.headers_too_large")


async def test_an_address_that_is_too_long_is_refused(api: Api) -> None:
    answer, _ = await anyio.to_thread.run_sync(_talk, api, _head(api, path="/" + "x" * HEADERS_LIMIT))
    assert _problem(answer) == (431, "request.headers_too_large")


@pytest.mark.parametrize("start", ["POST /", "POST / HTTP/1.1\r\nX-Long: ", "POST / HTTP/1.1\r\nA: b\r\n"])
async def test_headers_that_never_end_are_cut_off(api: Api, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    monkeypatch.setattr(http_protocol, "DISCARD_LIMIT", MIB)
    piece = b"A: b\r\n" * 10_000 if start.endswith("\n") else b"x" * 60_000
    answer, sent = await anyio.to_thread.run_sync(_talk, api, start.encode(), piece, 5000)
    assert _problem(answer) == (431, "request.headers_too_large")
    assert sent < 32 * MIB  # what both kernels hold


async def test_what_follows_a_chunked_body_is_bounded_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "DISCARD_LIMIT", MIB)
    head = _head(api, f"Authorization: Bearer {TOKEN}", "Transfer-Encoding: chunked")
    _, sent = await anyio.to_thread.run_sync(_talk, api, head + b"2\r\n{}\r\n0\r\n", b"A: b\r\n" * 10_000, 5000)
    assert sent < 32 * MIB
    assert (await api.http.get("/v1/conversations")).json()["items"] == []


async def test_what_follows_a_chunked_body_is_no_header(api: Api) -> None:
    head = _head(api, "Transfer-Encoding: chunked", "Connection: close")
    trailer = f"2\r\n{{}}\r\n0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    answer, _ = await anyio.to_thread.run_sync(_talk, api, head + trailer)
    assert _problem(answer) == (401, "token.missing")


async def test_large_headers_within_the_limit_are_taken_with_a_large_body_behind_them(api: Api) -> None:
    body = b'{"title": "x"' + b" " * 200_000 + b"}"
    lines = ["X-Long: " + "x" * (HEADERS_LIMIT - 1000), f"Content-Length: {len(body)}", "Connection: close"]
    head = _head(api, f"Authorization: Bearer {TOKEN}", *lines)
    answer, _ = await anyio.to_thread.run_sync(_talk, api, head + body)
    assert answer.startswith(b"HTTP/1.1 201 ")


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("piece", [b"", b"\r\n", b"GE", b"GET / HTTP/1.1\r\nHost:"])
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "second"])
async def test_headers_that_do_not_come_are_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, piece: bytes, before: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEADERS_S", 0.3)
    api.server.config.timeout_keep_alive = 1
    answers = await anyio.to_thread.run_sync(_wait_for_the_end, api, before, piece)
    if before:
        assert answers.startswith(b"HTTP/1.1 200 ")
        answers = answers[answers.index(b'{"status"') :].partition(b"}")[2].strip()
    assert (_problem(answers) == (408, "request.too_slow")) if piece else (answers == b"")


def _wait_for_the_end(api: Api, before: bytes, piece: bytes) -> bytes:
    with socket.create_connection(api.address, timeout=20) as connection:
        received = b""
        if before:
            connection.sendall(before)
            received = connection.recv(65536)
        connection.sendall(piece)
        while chunk := connection.recv(65536):
            received += chunk
        return received


async def test_a_request_that_takes_long_is_not_cut_off_by_the_deadline_of_headers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEADERS_S", 0.1)
    conversation = await api.create()
    host = f"{api.address[0]}:{api.address[1]}"
    lines = f"GET /v1/conversations/{conversation}/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n"
    async with await anyio.connect_tcp(*api.address) as connection:
        await connection.send(f"{lines}\r\n".encode())
        await eventually(lambda: api.app.state.outlive.followers == 1)
        await anyio.sleep(0.5)  # several times the deadline: that nothing happens cannot be waited for otherwise
        await api.send(conversation, "still there")
        received = b""
        with anyio.fail_after(10):
            while b"still there" not in received:
                received += await connection.receive()


async def test_bytes_that_are_no_http_are_a_problem(api: Api) -> None:
    for raw in (b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"\x16\x03\x01" + b"\0" * 100):
        answer, _ = await anyio.to_thread.run_sync(_talk, api, raw)
        assert _problem(answer) == (400, "request.unreadable")
