"""MCP servers behind HTTP, asked from outside: one made with the official package, and strangers."""

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from eventually import eventually, eventually_sync
from integration.loop.tools.workshop import AGENT
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at
from outlive.base import ConversationId, new_effect_id, new_step_id, new_turn_id
from outlive.conversation.events import Event, ToolCall
from outlive.loop.agents import AgentDefinition
from outlive.loop.binding import Persona
from outlive.loop.tools import ToolContext, ToolParts
from outlive.loop.tools.mcp.server import McpServer
from outlive.testing.pretend_provider import PretendProvider
from outlive.wiring.own_tools import make_mcp_tools

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

PICTURE = b"\x89PNG\r\n\x1a\n"


class Shop:
    """A server with the official package, in a thread; what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.url = ""

    def server(self) -> MCPServer:
        server = MCPServer("shop")

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def price(order: int) -> dict[str, Any]:
            """What an order costs."""
            self.asked.append("price")
            return {"order": order, "gross": 119.0}

        @server.tool()
        async def label(context: Context) -> Image:
            """A picture of a label."""
            self.asked.append("label")
            await context.report_progress(1, 2, "painting")
            return Image(data=PICTURE, format="png")

        @server.tool()
        def fail() -> str:
            """Fails."""
            raise ToolError("there is no paper")

        @server.tool()
        async def wait() -> str:
            """Waits."""
            self.asked.append("wait")
            while not self.gate.is_set():  # noqa: ASYNC110
                await anyio.sleep(0.05)
            return "waited"

        return server

    @contextmanager
    def serving(self) -> Iterator[None]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            app = self.server().streamable_http_app()
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                eventually_sync(lambda: server.started, WITHIN_S)
                yield
            finally:
                self.gate.set()
                server.should_exit = True
                thread.join(WITHIN_S)


@asynccontextmanager
async def stranger(answer: bytes, *, is_endless: bool = False) -> AsyncIterator[str]:
    """A server that answers every request with these bytes, and perhaps with more of them for ever."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await stream.receive()
                await stream.send(answer)
                while is_endless:
                    await stream.send(b"x" * 65_536)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        yield f"http://127.0.0.1:{port}/mcp"
        group.cancel_scope.cancel()


class Asking:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def converse(self, *servers: McpServer) -> ConversationId:
        definition = AgentDefinition(name="buyer", model=None, instructions="Buy.", tools=(), mcp=servers)
        await self.stage.parts.agents.apply(definition, by=PERSON)
        return await self.stage.converse(agent="buyer")

    async def say(self, of: ConversationId, text: str) -> list[Event]:
        turn = await self.stage.send(of, text)
        return [event for event in await self.stage.ended(of, turn, 120) if event.turn == turn]

    async def result(self, of: ConversationId, name: str, **arguments: Any) -> dict[str, Any]:
        script = f"[[tool {name} {json.dumps(arguments)}]] [[say Done.]]"
        [finished] = data_of(await self.say(of, script), "tool.finished")
        return finished


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    with shop.serving():
        yield shop


@asynccontextmanager
async def asking(home: Path, temporal: str, *hosts: str) -> AsyncIterator[Asking]:
    async with stage_at(home / "home", temporal, mcp={"allowed_hosts": hosts}) as stage:
        yield Asking(stage)


async def test_a_turn_uses_the_tools_of_a_server_behind_http(
    temporal: str, provider: PretendProvider, tmp_path: Path, shop: Shop
) -> None:
    async with asking(tmp_path, temporal, "127.0.0.1:*") as them:
        of = await them.converse(McpServer(name="shop", url=shop.url, headers={"X-Who": "me"}, timeout_s=60))
        priced = await them.result(of, "shop__price", order=1042)
        assert (priced["outcome"], json.loads(priced["output"])["gross"]) == ("finished", 119.0)
        label = await them.result(of, "shop__label")
        assert (label["outcome"], label["output"].startswith("[image/png, 8 bytes, kept as b3_")) == ("finished", True)
        kept = label["output"].rpartition(" ")[2].rstrip("]")
        assert await them.stage.parts.conversations.blobs.get(kept) == PICTURE
        failed = await them.result(of, "shop__fail")
        assert (failed["outcome"], "there is no paper" in failed["output"]) == ("failed", True)
        wrong = await them.result(of, "shop__price", order="many")
        assert (wrong["outcome"], "order" in wrong["output"]) == ("failed", True)

        turn = await them.stage.send(of, "[[tool shop__wait {}]] [[say Never.]]")
        await eventually(lambda: "wait" in shop.asked, WITHIN_S)
        await them.stage.loop.interrupt(of, turn, by=PERSON, reason="enough")
        [stopped] = [
            each
            for each in data_of(await them.stage.ended(of, turn), "tool.finished")
            if "interrupted" in each["output"]
        ]
        assert stopped["outcome"] == "lost"
        assert shop.asked == ["price", "label", "wait"]

    told = json.loads(provider.ledger.request(1) or b"")
    assert [each["name"] for each in told["tools"]] == ["shop__fail", "shop__label", "shop__price", "shop__wait"]
    assert told["tools"][2]["input_schema"]["required"] == ["order"]


async def test_a_call_whose_worker_died_is_lost_unless_its_server_says_that_it_may_be_repeated(
    temporal: str, provider: PretendProvider, tmp_path: Path, shop: Shop
) -> None:
    async with asking(tmp_path, temporal, "127.0.0.1:*") as them:
        parts, of = them.stage.parts, await them.stage.converse()
        tools = await make_mcp_tools(them.stage.settings, parts.clock)
        persona = Persona("Buy.", (), mcp=(McpServer(name="shop", url=shop.url, timeout_s=60),))
        context = ToolContext(
            parts=ToolParts(parts.conversations, parts.artifacts),
            conversation=of,
            turn=new_turn_id(),
            step=new_step_id(),
            effect_id=new_effect_id(),
            operator=AGENT,
            say=lambda *_: None,
            is_again=True,
        )
        ended = []
        for name in ("shop__label", "shop__price"):
            tool = await tools.find(persona, name, context)
            assert tool is not None
            ended.append((await tool.run(ToolCall(id="c", name=name, arguments={"order": 1}), context)).outcome)
        assert ended == ["lost", "finished"]
        assert shop.asked == ["price"]


async def test_what_is_listed_is_kept_for_all_workers(
    temporal: str, provider: PretendProvider, tmp_path: Path, shop: Shop
) -> None:
    server = McpServer(name="shop", url=shop.url, timeout_s=60)
    async with asking(tmp_path, temporal, "127.0.0.1:*") as them:
        await them.say(await them.converse(server), "[[say Done.]]")
    async with asking(tmp_path, temporal) as them:  # another worker, that may not ask it
        of = await them.converse(server)
        refused = await them.result(of, "shop__price", order=1)
        assert (refused["outcome"], "mcp.allowed_hosts" in refused["output"]) == ("rejected", True)
    assert "shop__fail" in [each["name"] for each in json.loads(provider.ledger.request(2) or b"")["tools"]]
    assert shop.asked == []


async def test_a_host_that_is_not_allowed_is_not_asked_and_a_stranger_breaks_nothing(
    temporal: str, provider: PretendProvider, tmp_path: Path, shop: Shop
) -> None:
    page = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000000\r\n\r\n"
    moved = b"HTTP/1.1 307 Moved\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
    async with (
        asking(tmp_path, temporal, "127.0.0.1:*", "localhost:1") as them,
        stranger(page, is_endless=True) as endless,
        stranger(b"nonsense\r\n\r\n") as nonsense,
        stranger(moved) as elsewhere,
    ):
        port = shop.url.rpartition(":")[2]
        urls = {
            "private": f"http://localhost:{port}",  # listed as an address, not as a name
            "metadata": "http://169.254.169.254/mcp",
            "endless": endless,
            "nonsense": nonsense,
            "elsewhere": elsewhere,
            "nobody": "http://127.0.0.1:1/mcp",
        }
        of = await them.converse(*(McpServer(name=name, url=url, timeout_s=30) for name, url in urls.items()))
        events = await them.say(of, "[[tool private__price {}]] [[tool endless__x {}]] [[say Done.]]")
        outcomes = data_of(events, "tool.finished")
        assert [each["outcome"] for each in outcomes] == ["rejected", "rejected"]
        assert "mcp.allowed_hosts" in outcomes[0]["output"]
    told = json.loads(provider.ledger.request(1) or b"")
    assert not told.get("tools")
    notes = json.dumps(told["system"])
    for name in urls:
        assert f"'{name}' cannot be used now" in notes
    assert "not_listed" in notes
    assert shop.asked == []
