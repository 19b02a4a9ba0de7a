"""What a server behind HTTP may answer a call with, and what is made of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.loop.mcp.scripted import Scripted, http, said
from outlive.base import new_effect_id
from outlive.governance.egress import parse_rules
from outlive.governance.egress_dial import DirectDialer
from outlive.loop.backends.mcp_client import SdkMcpClient
from outlive.loop.tools.mcp.client import HttpWay, McpAnswer, Question

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def client() -> Iterator[SdkMcpClient]:
    with ThreadPoolExecutor(1) as threads:
        yield SdkMcpClient(parse_rules(["127.0.0.1:*"]), DirectDialer(threads))


async def call(client: SdkMcpClient, server: Scripted) -> McpAnswer:
    async with server.serving() as url:
        question = Question("go", {}, new_effect_id(), lambda: None, lambda _: None)
        return await client.call(HttpWay(url, {}), question)


async def test_an_answer_is_taken_as_it_is_and_nothing_is_asked_after_it(client: SdkMcpClient) -> None:
    server = Scripted(lambda of: http(said(of, "done", structuredContent={"not": "as listed"})))
    assert (await call(client, server)).pieces == ["done"]
    assert server.asked[-1] == "tools/call"
    assert "tools/list" not in server.asked
