"""Nobody gets at a terminal's WebSocket who would not get at its HTTP."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import TOKEN
from integration.api.terminals import WITHIN_S, attached, handshake, open_terminal, principal
from outlive.base import new_terminal_id

pytestmark = pytest.mark.anyio

V5 = "v5.channel.k8s.io"


def bearer(token: str) -> str:
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{encoded}"


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def head_of(api: MachineApi, request: bytes) -> bytes:
    """The head of the answer, in lower case."""
    async with await anyio.connect_tcp(*api.api.address) as client:
        await client.send(request)
        with anyio.fail_after(WITHIN_S):
            return (await BufferedByteReceiveStream(client).receive_until(b"\r\n\r\n", 64 * 1024)).lower()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        (("Origin: https://evil.example",), 403),
        (("Origin: null",), 403),
        (("Sec-WebSocket-Key: second",), 422),
        (("Sec-WebSocket-Version: 12",), 426),
    ],
)
async def test_a_wrong_handshake_is_a_problem_and_attaches_nobody(
    api: MachineApi, changes: tuple[str, ...], status: int
) -> None:
    terminal = await open_terminal(api, command="exec cat")
    request = handshake(terminal, "", *changes)
    if status == 426:
        request = request.replace(b"Sec-WebSocket-Version: 13\r\n", b"")
    head = await head_of(api, request)
    assert head.startswith(b"http/1.1 %d " % status)
    assert b"application/problem+json" in head
    assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["operators"] == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example"])
async def test_a_page_of_another_name_is_misdirected(api: MachineApi, host: str) -> None:
    terminal = await open_terminal(api, command="exec cat")
    request = handshake(terminal).replace(b"Host: 127.0.0.1", b"Host: " + host.encode())
    assert (await head_of(api, request)).startswith(b"http/1.1 421 ")


@pytest.mark.parametrize("token", ["", "wrong", f"{TOKEN}x"])
async def test_without_a_known_token_there_is_no_websocket(api: MachineApi, token: str) -> None:
    terminal = await open_terminal(api, command="exec cat")
    assert (await head_of(api, handshake(terminal, token=token))).startswith(b"http/1.1 401 ")


async def test_a_browser_offers_its_token_as_a_subprotocol_and_it_is_not_echoed(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo ready; exec cat")
    async with attached(api.api, terminal, token="", protocols=(bearer(TOKEN), V5), from_=0) as client:
        assert client.connection.subprotocol == V5
        await client.until_output(b"ready")
    alone = await head_of(api, handshake(terminal, "", f"Sec-WebSocket-Protocol: {bearer(TOKEN)}", token=""))
    assert alone.startswith(b"http/1.1 101 ")
    assert b"sec-websocket-protocol" not in alone


@pytest.mark.parametrize(
    "offered",
    [
        V5,
        bearer("wrong"),
        f"{bearer(TOKEN)}, {bearer(TOKEN)}",
        bearer(TOKEN) + "!",
        bearer(TOKEN).upper(),
        "base64url.bearer.authorization.k8s.io.",
        f"base64url.bearer.authorization.k8s.io.{TOKEN}",
    ],
)
async def test_what_is_no_token_among_the_subprotocols_lets_nobody_in(api: MachineApi, offered: str) -> None:
    terminal = await open_terminal(api, command="exec cat")
    request = handshake(terminal, "", f"Sec-WebSocket-Protocol: {offered}", token="")
    assert (await head_of(api, request)).startswith(b"http/1.1 401 ")


async def test_a_token_among_the_subprotocols_opens_nothing_but_a_terminals_websocket(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="exec cat")
    machine = (await api.http.get(f"/v1/terminals/{terminal}")).json()["machine"]
    offered = handshake(terminal, "", f"Sec-WebSocket-Protocol: {bearer(TOKEN)}", token="")
    attach = f"/v1/terminals/{terminal}/attach?".encode()
    for path in (f"/v1/machines/{machine}/ports/8000/ws", f"/v1/terminals/{terminal}", "/v1/machines"):
        assert (await head_of(api, offered.replace(attach, path.encode()))).startswith(b"http/1.1 401 ")
    plain = offered.replace(b"Upgrade: websocket\r\n", b"")
    assert (await head_of(api, plain)).startswith(b"http/1.1 401 ")
    posted = offered.replace(b"GET ", b"POST ", 1)
    assert (await head_of(api, posted)).startswith(b"http/1.1 401 ")


async def test_who_may_only_observe_attaches_to_watch_and_types_nothing(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo ready; exec cat")
    eye = await principal(api.api, "eye", "device", rights=["observe"])
    assert (await head_of(api, handshake(terminal, "mode=type", token=eye))).startswith(b"http/1.1 403 ")
    async with attached(api.api, terminal, token=eye, from_=0) as client:
        await client.until_output(b"ready\r\n")
        await client.type(b"x\n")
        await client.until_status("refused")
    shown = (await api.http.get(f"/v1/terminals/{terminal}")).json()
    assert (shown["offset"], shown["lease"]) == (len(b"ready\r\n"), None)


@pytest.mark.parametrize("query", ["mode=take", "mode=", "from=-1", "from=x", "from=", "surprise=1", "from=1e3"])
async def test_a_wrong_query_is_a_problem(api: MachineApi, query: str) -> None:
    terminal = await open_terminal(api, command="exec cat")
    assert (await head_of(api, handshake(terminal, query))).startswith(b"http/1.1 422 ")


async def test_a_terminal_that_is_none_is_not_found_and_plain_http_is_told_to_upgrade(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="exec cat")
    for wrong in (new_terminal_id(), "x", "term_" + "G" * 32, "%2e%2e"):
        assert (await head_of(api, handshake(wrong))).startswith(b"http/1.1 404 ")
    answer = await api.http.get(f"/v1/terminals/{terminal}/attach")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.json()["code"] == "websocket.required"
