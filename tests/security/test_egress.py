"""A hostile machine at its egress socket: requests that two readers could read differently reach no origin."""

from pathlib import Path

import anyio.abc
import pytest

from eventually import eventually
from integration.governance.egress import (
    LOOPBACK,
    BookDialer,
    Origin,
    answering,
    connect,
    get,
    open_egress,
    open_origin,
)
from outlive.governance import EgressLimits

pytestmark = pytest.mark.anyio

PORT = "<port>"  # stands for the origin's in the requests below
ALLOWED = f"allowed.test:{PORT}"
URL = f"http://{ALLOWED}/"

HOSTILE: dict[str, bytes] = {
    "length and chunks": get(URL, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "two lengths": get(URL, "Content-Length: 5", "Content-Length: 6") + b"hello!",
    "signed length": get(URL, "Content-Length: +5") + b"hello",
    "chunks in disguise": get(URL, "Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "two codings": get(URL, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "chunks twice": get(URL, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": get(URL, "Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "space before the colon": get(URL, "Content-Length : 5") + b"hello",
    "length named hop-by-hop": get(URL, "Connection: content-length", "Content-Length: 5") + b"hello",
    "host named hop-by-hop": get(URL, "Connection: close, Host"),
    "two hosts": get(URL, f"Host: {ALLOWED}"),
    "no host": f"GET {URL} HTTP/1.1\r\n\r\n".encode(),
    "another host": get(URL, host="denied.test"),
    "another port": get(URL, host="allowed.test:1"),
    "another host by tunnel": connect(ALLOWED).replace(b"Host: allowed", b"Host: denied"),
    "NUL in a field": get(URL, "X: a\0b"),
    "CR in a field": get(URL, "X: a\rHost: b"),
    "NUL in the target": get(f"http://{ALLOWED}/\0"),
    "space in the target": get(f"http://{ALLOWED}/ x"),
    "a user in the target": get(f"http://{ALLOWED}@denied.test/", host=ALLOWED),
    "a user who looks like a host": get(f"http://denied.test@{ALLOWED}/", host=ALLOWED),
    "a backslash": get(f"http://denied.test\\@{ALLOWED}/", host=ALLOWED),
    "a fragment": get(f"http://{ALLOWED}#@denied.test/", host=ALLOWED),
    "no absolute target": get("/", host=ALLOWED),
    "another scheme": get(f"https://{ALLOWED}/"),
    "a zero before the port": connect(f"allowed.test:0{PORT}"),
    "a sign before the port": connect(f"allowed.test:+{PORT}"),
    "no port": connect("allowed.test"),
    "an empty port": connect("allowed.test:"),
    "two dots": connect(f"allowed.test..:{PORT}"),
    "a name with a zone": connect(f"[fe80::1%25eth0]:{PORT}"),
    "an address in hex": connect(f"0x7f000001:{PORT}"),
    "an address in one number": connect(f"2130706433:{PORT}"),
    "a short address": connect(f"127.1:{PORT}"),
    "a tunnel with a body": connect(ALLOWED).replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\nhello"),
    "a tunnel with chunks": connect(ALLOWED).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a path after the port": connect(f"{ALLOWED}/"),
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", HOSTILE.values(), ids=HOSTILE.keys())
async def test_an_ambiguous_request_is_refused_recorded_and_reaches_nobody(
    tmp_path: Path, request_bytes: bytes
) -> None:
    dialer = BookDialer(allowed_test=[LOOPBACK], denied_test=[LOOPBACK])
    async with open_origin(answering()) as origin, open_egress(tmp_path, dialer) as egress:
        port = str(origin.port)
        egress.allow(f"allowed.test:{port}", f"127.0.0.0/8:{port}")
        assert (await egress.ask(get(URL.replace(PORT, port)))).endswith(b"hi")
        answer = await egress.ask(request_bytes.replace(PORT.encode(), port.encode()))
        assert answer.startswith(b"HTTP/1.1 400 ")
        await eventually(lambda: len(egress.store.decisions) == 3)
        verdict, reason = egress.store.said()[2]
        assert (verdict, reason) in [("denied", "request_invalid"), ("denied", "host_invalid")]
        assert (dialer.asked, origin.connections) == (["allowed.test"], 1)


async def test_a_head_without_end_is_refused_at_its_bound(tmp_path: Path) -> None:
    async with open_egress(tmp_path, BookDialer(), limits=EgressLimits(head_s=20)) as egress:
        answer = await egress.ask(get("http://a.test/", *(f"X-{number}: {'x' * 1000}" for number in range(100))))
        assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_body_that_is_broken_ends_the_request(tmp_path: Path) -> None:
    async def mute(origin: Origin, stream: anyio.abc.SocketStream) -> None:
        async for chunk in stream:
            origin.heard += chunk

    async with (
        open_origin(mute) as origin,
        open_egress(tmp_path, BookDialer(allowed_test=[LOOPBACK])) as egress,
    ):
        egress.allow(f"allowed.test:{origin.port}", f"{LOOPBACK}:*")
        url = URL.replace(PORT, str(origin.port))
        answer = await egress.ask(get(url, "Transfer-Encoding: chunked") + b"zz\r\nGET / HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        await eventually(lambda: origin.heard.count(b"HTTP/1.1") == 1)
        assert egress.store.said()[-1] == ("denied", "request_invalid")
