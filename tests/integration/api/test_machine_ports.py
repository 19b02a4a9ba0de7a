"""Previews over a real API and a real node's listeners: HTTP and WebSocket, streamed, and nothing of ours leaks."""

import http.client
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import TOKEN

pytestmark = pytest.mark.anyio

Handle = Callable[[bytes, BufferedByteReceiveStream, anyio.abc.SocketStream], Awaitable[None]]


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


class Server:
    """A server in a machine: hands the head of each request to `handle`, and keeps it."""

    def __init__(self, handle: Handle) -> None:
        self.heads: list[bytes] = []
        self.port = 0
        self._handle = handle

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            buffered = BufferedByteReceiveStream(stream)
            try:
                head = await buffered.receive_until(b"\r\n\r\n", 64 * 1024)
                self.heads.append(head)
                await self._handle(head, buffered, stream)
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.EndOfStream):
                pass


@asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[Server]:
    server = Server(handle)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        group.start_soon(listener.serve, server.serve)
        yield server
        group.cancel_scope.cancel()


def answering(answer: bytes) -> Handle:
    async def handle(_: bytes, __: BufferedByteReceiveStream, stream: anyio.abc.SocketStream) -> None:
        await stream.send(answer)

    return handle


async def test_a_page_comes_through_with_its_target_unchanged_and_nothing_of_ours_leaks(api: MachineApi) -> None:
    machine = await api.create()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/html\r\nSet-Cookie: a=1; Path=/\r\n\r\nhello"
    async with serving(answering(answer)) as server:
        place = f"/v1/machines/{machine}/ports/{server.port}"
        got = await api.http.get(f"{place}/a%2Fb/c%20d?x=%26&y", headers={"cookie": "outlive=1; b=2"})
    assert (got.status_code, got.text, got.headers["content-type"]) == (200, "hello", "text/html")
    assert got.headers["set-cookie"] == f"a=1; Path={place}/"
    assert "sandbox" in got.headers["content-security-policy"]
    [head] = server.heads
    assert head.startswith(b"GET /a%2Fb/c%20d?x=%26&y HTTP/1.1\r\n")
    assert TOKEN.encode() not in head
    assert b"authorization" not in head.lower()
    assert b"cookie: b=2\r\n" in head.lower() + b"\r\n"
    assert f"host: localhost:{server.port}".encode() in head.lower()
    assert f"x-forwarded-prefix: {place}".encode() in head.lower()


async def test_a_body_of_any_size_is_streamed_in_and_out(api: MachineApi) -> None:
    machine = await api.create()

    async def count_and_send(__: bytes, buffered: BufferedByteReceiveStream, stream: anyio.abc.SocketStream) -> None:
        total = 0
        while size := int(await buffered.receive_until(b"\r\n", 64), 16):
            await buffered.receive_exactly(size + 2)
            total += size
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total // 65_536):
            await stream.send(bytes(65_536))

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(1024 * 1024)

    async with serving(count_and_send) as server:
        got = await api.http.post(f"/v1/machines/{machine}/ports/{server.port}/", content=pieces())
    assert got.status_code == 200
    assert got.content == bytes(20 * 1024 * 1024)


async def test_an_answer_reaches_the_caller_before_it_is_whole(api: MachineApi) -> None:
    machine = await api.create()
    seen = anyio.Event()

    async def drip(_: bytes, __: BufferedByteReceiveStream, stream: anyio.abc.SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await seen.wait()
        await stream.send(b"4\r\nlast\r\n0\r\n\r\n")

    async with (
        serving(drip) as server,
        api.http.stream("GET", f"/v1/machines/{machine}/ports/{server.port}/") as got,
    ):
        came = b""
        async for piece in got.aiter_bytes():
            came += piece
            seen.set()
    assert came == b"firstlast"


@pytest.mark.parametrize(
    "answer",
    [
        b"not http\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000 + b"\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_that_is_no_http_is_a_problem(api: MachineApi, answer: bytes) -> None:
    machine = await api.create()
    async with serving(answering(answer)) as server:
        got = await api.http.get(f"/v1/machines/{machine}/ports/{server.port}/")
    assert assert_problem(got, 503)["code"] in ("port.garbled", "port.gone")


async def test_an_answer_that_is_cut_off_is_not_taken_for_whole(api: MachineApi) -> None:
    machine = await api.create()
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")) as server:
        port = server.port

        def read() -> None:
            connection = http.client.HTTPConnection(*api.api.address, timeout=20)
            try:
                target = f"/v1/machines/{machine}/ports/{port}/"
                connection.request("GET", target, headers={"Authorization": f"Bearer {TOKEN}"})
                with pytest.raises(http.client.IncompleteRead):
                    connection.getresponse().read()
            finally:
                connection.close()

        await anyio.to_thread.run_sync(read)


@pytest.mark.parametrize("port", ["0", "080", "+80", "65536", "8080x", "%38080"])
async def test_a_port_has_one_spelling(api: MachineApi, port: str) -> None:
    machine = await api.create()
    got = await api.http.get(f"/v1/machines/{machine}/ports/{port}/")
    assert assert_problem(got, 422)["code"] == "port.malformed"


async def test_a_port_where_nobody_listens_is_told(api: MachineApi) -> None:
    machine = await api.create()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    got = await api.http.get(f"/v1/machines/{machine}/ports/{port}/")
    assert assert_problem(got, 503)["code"] == "port.refused"


async def test_without_the_last_slash_the_preview_says_where_it_is(api: MachineApi) -> None:
    machine = await api.create()
    got = await api.http.get(f"/v1/machines/{machine}/ports/8000?a=b", follow_redirects=False)
    assert (got.status_code, got.headers["location"]) == (307, f"/v1/machines/{machine}/ports/8000/?a=b")


async def test_a_preview_is_for_those_with_a_token_and_no_foreign_page(api: MachineApi) -> None:
    machine = await api.create()
    place = f"/v1/machines/{machine}/ports/8000/"
    assert_problem(await api.http.get(place, headers={"authorization": "Bearer x"}), 401)
    assert_problem(await api.http.get(place, headers={"origin": "https://evil.example"}), 403)


async def test_a_preview_wakes_the_machine(api: MachineApi) -> None:
    machine = await api.create()
    await api.do(machine, "hibernate")
    async with serving(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        got = await api.http.get(f"/v1/machines/{machine}/ports/{server.port}/")
    assert got.status_code == 204


def _upgrade(machine: str, port: int, *more: str) -> bytes:
    lines = [
        f"GET /v1/machines/{machine}/ports/{port}/ws HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {TOKEN}",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_a_websocket_passes_bytes_both_ways_with_backpressure(api: MachineApi) -> None:
    machine = await api.create()

    async def echo(_: bytes, __: BufferedByteReceiveStream, stream: anyio.abc.SocketStream) -> None:
        await stream.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nahead"
        )
        async for piece in stream:
            await stream.send(piece)

    size = 4 * 1024 * 1024
    async with serving(echo) as server, await anyio.connect_tcp(*api.api.address) as client:
        await client.send(_upgrade(machine, server.port))
        buffered = BufferedByteReceiveStream(client)
        with anyio.fail_after(30):
            head = await buffered.receive_until(b"\r\n\r\n", 64 * 1024)
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
            assert await buffered.receive_exactly(5) == b"ahead"
            async with anyio.create_task_group() as group:
                group.start_soon(client.send, bytes(size))
                assert await buffered.receive_exactly(size) == bytes(size)
    assert TOKEN.encode() not in server.heads[0]
    assert b"upgrade: websocket" in server.heads[0].lower()


async def test_a_websocket_ends_with_its_caller(api: MachineApi) -> None:
    machine = await api.create()
    ended = anyio.Event()

    async def hold(_: bytes, __: BufferedByteReceiveStream, stream: anyio.abc.SocketStream) -> None:
        await stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        try:
            await stream.receive()
        finally:
            ended.set()

    async with serving(hold) as server:
        async with await anyio.connect_tcp(*api.api.address) as client:
            await client.send(_upgrade(machine, server.port))
            await client.receive()
        with anyio.fail_after(20):
            await ended.wait()


async def test_a_websocket_of_a_foreign_page_is_refused(api: MachineApi) -> None:
    machine = await api.create()
    async with await anyio.connect_tcp(*api.api.address) as client:
        await client.send(_upgrade(machine, 8000, "Origin: https://evil.example"))
        with anyio.fail_after(20):
            assert (await client.receive()).startswith(b"HTTP/1.1 403 ")


async def test_a_server_that_does_not_upgrade_is_told(api: MachineApi) -> None:
    machine = await api.create()
    async with (
        serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as server,
        await anyio.connect_tcp(*api.api.address) as client,
    ):
        await client.send(_upgrade(machine, server.port))
        with anyio.fail_after(20):
            assert (await client.receive()).startswith(b"HTTP/1.1 503 ")
