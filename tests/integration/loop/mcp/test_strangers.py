"""What a server behind HTTP may answer a call with, and what is made of it."""

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from integration.loop.mcp.scripted import Answer, Scripted, http, rpc, said
from outlive.base import ConflictError, OutliveError, UnavailableError, new_effect_id
from outlive.governance.egress import parse_rules
from outlive.governance.egress_dial import DirectDialer
from outlive.loop.backends.mcp_client import SdkMcpClient
from outlive.loop.tools.mcp.client import HttpWay, McpAnswer, Question

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def client() -> Iterator[SdkMcpClient]:
    with ThreadPoolExecutor(1) as threads:
        yield SdkMcpClient(parse_rules(["127.0.0.1:*"]), DirectDialer(threads))


def a_question() -> Question:
    return Question("go", {}, new_effect_id(), lambda: None, lambda _: None)


async def call(client: SdkMcpClient, server: Scripted) -> McpAnswer:
    ended: list[McpAnswer | OutliveError] = []
    async with server.serving() as url:
        try:
            ended.append(await client.call(HttpWay(url, {}), a_question()))
        except OutliveError as error:  # a task group would wrap it
            ended.append(error)
    if isinstance(ended[0], OutliveError):
        raise ended[0]
    return ended[0]


async def test_an_answer_is_taken_as_it_is_and_nothing_is_asked_after_it(client: SdkMcpClient) -> None:
    server = Scripted(lambda of: http(said(of, "done", structuredContent={"not": "as listed"})))
    assert (await call(client, server)).pieces == ["done"]
    assert server.asked[-1] == "tools/call"
    assert "tools/list" not in server.asked


REFUSED = {"code": -32602, "message": "That I will not do."}


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Oh"])
async def test_an_error_that_the_server_answers_is_its_own(client: SdkMcpClient, status: str) -> None:
    with pytest.raises(ConflictError, match="That I will not do"):
        await call(client, Scripted(lambda of: http(rpc(of, error=REFUSED), status=status)))


@pytest.mark.parametrize(
    "answer",
    [
        lambda of: http(b"<h1>Bad gateway</h1>", "text/html", "502 Bad Gateway"),
        lambda of: http(b'{"detail": "oh"}', status="500 Oh"),
        lambda of: http(said(of, "done"), status="500 Oh"),
        lambda of: http(b"", status="404 Not Found"),
        lambda of: http(b"", status="202 Accepted"),
        lambda of: http(b"", status="302 Found", more="Location: http://127.0.0.1:1/\r\n"),
        lambda of: http(b"done", "text/plain"),
        lambda of: http(b'{"jsonrpc": "2.0", "id"'),
        lambda of: http(b"data: {nonsense\n\n", "text/event-stream"),
        lambda of: http(b"", "text/event-stream"),
    ],
)
async def test_what_is_no_answer_leaves_it_unknown_whether_the_call_was_done(
    client: SdkMcpClient, answer: Answer
) -> None:
    with pytest.raises(UnavailableError) as caught:
        await call(client, Scripted(answer))
    assert caught.value.code == "mcp.broken"


async def test_what_is_packed_is_not_unpacked(client: SdkMcpClient) -> None:
    server = Scripted(lambda of: http(gzip.compress(said(of, "x" * 1_000_000)), more="Content-Encoding: gzip\r\n"))
    with pytest.raises(UnavailableError, match="packed"):
        await call(client, server)
    assert all("accept-encoding: identity" in head.lower() for head in server.heads)


async def test_a_long_answer_comes_whole_also_as_an_event(client: SdkMcpClient) -> None:
    text = "x" * 3_000_000
    server = Scripted(lambda of: http(b"data: " + said(of, text) + b"\n\n", "text/event-stream"))
    assert (await call(client, server)).pieces == [text]


async def test_an_answer_in_hand_is_kept_though_the_server_holds_on_to_its_session(client: SdkMcpClient) -> None:
    server = Scripted(lambda of: http(said(of, "done")), holds_on=True)
    answers: list[McpAnswer] = []

    async def ask(url: str, scope: anyio.CancelScope) -> None:
        with scope:
            answers.append(await client.call(HttpWay(url, {}), a_question()))

    async with server.serving() as url, anyio.create_task_group() as group:
        group.start_soon(ask, url, patience := anyio.CancelScope())
        await server.let_go.wait()
        patience.cancel()
    assert [each.pieces for each in answers] == [["done"]]
