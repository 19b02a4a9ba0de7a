"""Plain HTTP through the egress proxy: what reaches the origin, and what comes back."""

from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

import anyio
import anyio.abc
import h11
import httpx
import pytest

from descriptors import no_descriptors_left
from eventually import eventually
from integration.governance.egress import (
    LOOPBACK,
    LOOPS,
    Egress,
    Origin,
    answering,
    get,
    open_egress,
    open_origin,
    outer_dialer,
)
from outlive.base import UnavailableError
from outlive.governance import DirectDialer
from outlive.governance.egress import Name

pytestmark = pytest.mark.anyio


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def _body_of(reader: h11.Connection, message: bytes) -> bytes:
    """The body as a strict reader sees it; fails if the message does not end where its bytes do."""
    reader.receive_data(message)
    body = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Request | h11.Data), event
        body += event.data if isinstance(event, h11.Data) else b""
    assert reader.trailing_data[0] == b""
    return body


async def test_a_request_reaches_its_origin_without_what_was_meant_for_the_proxy(tmp_path: Path) -> None:
    answer = (
        b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: x-hop\r\nX-Hop: 1\r\n"
        b"Keep-Alive: 5\r\nProxy-Authenticate: Basic\r\nX-End: 1\r\n\r\nhi"
    )
    async with open_origin(answering(answer)) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        fields = [
            *("Proxy-Authorization: x", "Proxy-Connection: keep-alive", "Connection: keep-alive, X-Private"),
            *("X-Private: 1", "Keep-Alive: 9", "TE: trailers", "Upgrade: h2c", "X-Kept: 1"),
        ]
        got = await egress.ask(get(f"http://allowed.test:{origin.port}/a?b=c", *fields))
        await eventually(lambda: len(egress.store.decisions) == 2)
    line, *sent = origin.heard.decode().split("\r\n")
    assert line == "GET /a?b=c HTTP/1.1"
    expected = [f"host: allowed.test:{origin.port}", "x-kept: 1", "via: 1.1 outlive", "connection: close"]
    assert [field.lower() for field in sent if field] == expected
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"HTTP/1.1 200 Fine", b"content-length: 2", b"x-end: 1", b"connection: close"]
    assert body == b"hi"
    ended = egress.store.decisions[1]
    assert (ended.method, ended.bytes_up, ended.bytes_down) == ("GET", len(origin.heard), len(answer))


@pytest.mark.parametrize(
    "framing",
    [("Content-Length: 8", b"12345678"), ("Transfer-Encoding: chunked", b"3\r\n123\r\n5\r\n45678\r\n0\r\n\r\n")],
)
async def test_a_body_arrives_whole_however_it_is_framed(tmp_path: Path, framing: tuple[str, bytes]) -> None:
    async def handler(origin: Origin, stream: anyio.abc.SocketStream) -> None:
        await origin.hear_until(stream, b"8" if framing[0].startswith("Content") else b"0\r\n\r\n")
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n")
        await stream.send(b"2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n")

    async with open_origin(handler) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        request = get(f"http://allowed.test:{origin.port}/", framing[0]).replace(b"GET", b"POST") + framing[1]
        got = await egress.ask(request)
    assert _body_of(h11.Connection(h11.SERVER), origin.heard) == b"12345678"
    head, _, body = got.partition(b"\r\n\r\n")
    assert sorted(head.lower().split(b"\r\n")[1:]) == [b"connection: close", b"transfer-encoding: chunked"]
    assert body == b"2\r\nhi\r\n0\r\n\r\n"


async def test_a_machine_that_waits_to_be_told_to_go_on_is_told(tmp_path: Path) -> None:
    async def handler(origin: Origin, stream: anyio.abc.SocketStream) -> None:
        await origin.hear_until(stream, b"body")
        await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with open_origin(handler) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        async with await egress.dial() as stream:
            request = get(f"http://allowed.test:{origin.port}/", "Expect: 100-continue", "Content-Length: 4")
            await stream.send(request.replace(b"GET", b"PUT"))
            assert (await stream.receive()).startswith(b"HTTP/1.1 100 ")
            await stream.send(b"body")
            assert (await stream.receive()).startswith(b"HTTP/1.1 204 ")
        assert b"expect" not in origin.heard.lower()


async def test_an_answer_before_the_end_of_the_request_is_passed_on(tmp_path: Path) -> None:
    answer = answering(b"HTTP/1.1 413 Too Big\r\nContent-Length: 0\r\n\r\n")
    async with open_origin(answer) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        got = await egress.ask(get(f"http://allowed.test:{origin.port}/", "Content-Length: 1000") + b"only this")
    assert got.startswith(b"HTTP/1.1 413 Too Big\r\n")


async def test_an_answer_that_breaks_off_is_not_made_whole(tmp_path: Path) -> None:
    broken = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
    async with open_origin(broken) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        got = await egress.ask(get(f"http://allowed.test:{origin.port}/"))
    assert got.partition(b"\r\n\r\n")[2] == b"3\r\nhel\r\n"


@pytest.mark.parametrize(
    "nonsense", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 200 "]
)
async def test_an_origin_that_speaks_no_http_is_a_bad_gateway(tmp_path: Path, nonsense: bytes) -> None:
    async with open_origin(answering(nonsense)) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        assert (await egress.ask(get(f"http://allowed.test:{origin.port}/"))).startswith(b"HTTP/1.1 502 ")
        await eventually(lambda: egress.store.said()[-1:] == [("failed", "answer_broken")])


async def test_a_second_request_on_the_same_connection_goes_nowhere(tmp_path: Path) -> None:
    async with open_origin(answering()) as origin, open_egress(tmp_path, outer_dialer()) as egress:
        egress.allow(f"allowed.test:{origin.port}")
        request = get(f"http://allowed.test:{origin.port}/")
        got = await egress.ask(request + request)
        assert got.count(b"HTTP/1.1 200 OK") == 1
        assert (origin.connections, origin.heard.count(b"GET ")) == (1, 1)


async def _relay(egress: Egress, near: anyio.abc.SocketStream) -> None:
    """What the guest does in the machine: its loopback port is the socket."""

    async def pump(source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream) -> None:
        async for chunk in source:
            await sink.send(chunk)
        await sink.send_eof()

    async with near, await egress.dial() as far, anyio.create_task_group() as group:
        group.start_soon(pump, near, far)
        group.start_soon(pump, far, near)


async def test_an_ordinary_client_works_with_its_proxy_setting(tmp_path: Path) -> None:
    async with (
        open_origin(answering()) as origin,
        open_egress(tmp_path, outer_dialer()) as egress,
        await anyio.create_tcp_listener(local_host=LOOPBACK) as listener,
        anyio.create_task_group() as group,
    ):
        egress.allow(f"allowed.test:{origin.port}")
        group.start_soon(listener.serve, lambda near: _relay(egress, near))
        proxy = f"http://{LOOPBACK}:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        async with httpx.AsyncClient(proxy=proxy, trust_env=False) as client:
            assert (await client.get(f"http://allowed.test:{origin.port}/")).text == "hi"
            assert "retrying does not help" in (await client.get("http://denied.test/")).text
            with pytest.raises(httpx.ProxyError, match="403 Denied by the egress policy"):
                await client.get("https://denied.test/")
        group.cancel_scope.cancel()


async def test_the_direct_dialer_asks_the_host_and_connects() -> None:
    with ThreadPoolExecutor(1) as threads:
        dialer = DirectDialer(threads)
        for _ in range(6):  # more than there are places: each is given back
            assert ip_address(LOOPBACK) in await dialer.resolve(Name(("localhost",)))
        with pytest.raises(UnavailableError, match="leads nowhere"):
            await dialer.resolve(Name(("a" * 63,) * 5))
        async with open_origin(answering()) as origin:
            (await dialer.connect(ip_address(LOOPBACK), origin.port)).close()
            await eventually(lambda: origin.connections == 1)
            with no_descriptors_left(), pytest.raises(UnavailableError, match="Too many open files"):
                await dialer.connect(ip_address(LOOPBACK), origin.port)
        with pytest.raises(UnavailableError):
            await dialer.connect(ip_address(LOOPBACK), origin.port)
