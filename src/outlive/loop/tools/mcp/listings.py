"""What MCP servers offer, looked up when it is first needed and kept: so that a turn thinks before its machine is up,
and is told the same at every step.

Rule 1: a server that cannot be asked holds nobody up. The model is told that it cannot be used, and why.
Rule 2: a server behind an address is the same for everybody. One that runs in a machine is that machine's, and what it
        says reaches no other conversation.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import anyio

from outlive.base import Clock, OutliveError, new_effect_id, to_text
from outlive.loop.binding import Persona
from outlive.loop.tools.mcp.client import McpClient
from outlive.loop.tools.mcp.listing import Listing, RawTool, make_listing, server_of
from outlive.loop.tools.mcp.pipe import MachinePipe
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.mcp.tool import BrokenMcpTool, McpTool, open_way
from outlive.loop.tools.port import Tool, ToolContext

KEPT_S = 3_600.0
TROUBLE_KEPT_S = 30.0
LIST_WITHIN_S = 60.0
_REMEMBERED = 256


class Listings(Protocol):
    """Listings that were made, for all workers."""

    async def get(self, key: str) -> Listing | None: ...

    async def put(self, key: str, listing: Listing) -> None: ...


class _Known(NamedTuple):
    until: float
    listing: Listing | None
    trouble: str = ""


class McpTools:
    def __init__(self, client: McpClient, kept: Listings, clock: Clock) -> None:
        self._client = client
        self._kept = kept
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def tell(self, persona: Persona, context: ToolContext) -> tuple[list[Tool], list[str]]:
        """The tools of all servers of an agent, and what else the model has to be told of them."""
        tools: list[Tool] = []
        notes: list[str] = []
        for server, known in await self._know_all(persona.mcp, context):
            if known.listing is None:
                notes.append(known.trouble)
                continue
            tools += [McpTool(server, each, self._client) for each in known.listing.tools]
            notes += known.listing.notes
        return tools, notes

    async def find(self, persona: Persona, name: str, context: ToolContext) -> Tool | None:
        server = next((each for each in persona.mcp if each.name == server_of(name)), None)
        if server is None:
            return None
        known = await self._know(server, context)
        if known.listing is None:
            return BrokenMcpTool(name, known.trouble)
        listed = next((each for each in known.listing.tools if each.name == name), None)
        return None if listed is None else McpTool(server, listed, self._client)

    async def _know_all(self, servers: Sequence[McpServer], context: ToolContext) -> list[tuple[McpServer, _Known]]:
        found: dict[str, _Known] = {}

        async def one(server: McpServer) -> None:
            found[server.name] = await self._know(server, context)

        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(one, server)
        return [(server, found[server.name]) for server in servers]

    async def _know(self, server: McpServer, context: ToolContext) -> _Known:
        key = key_of(server, context)
        known = self._known.get(key)
        if known is None or self._clock.monotonic() > known.until:
            known = await self._look(key, server, context)
            self._known[key] = known
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def _look(self, key: str, server: McpServer, context: ToolContext) -> _Known:
        now = self._clock.monotonic()
        kept = await self._kept.get(key)
        if kept is not None:
            age_s = (self._clock.now() - datetime.fromisoformat(kept.at)) / timedelta(seconds=1)
            if age_s < KEPT_S:
                return _Known(now + KEPT_S - max(0.0, age_s), kept)
        words = ""
        answers: list[tuple[Sequence[RawTool], bool]] = []  # what was answered counts, whatever goes wrong behind it
        try:
            with anyio.fail_after(LIST_WITHIN_S):
                async with open_way(server, context, new_effect_id()) as way:
                    try:
                        answers.append(await self._client.list_tools(way))
                    finally:
                        words = way.last_words() if isinstance(way, MachinePipe) else ""
        except (TimeoutError, OutliveError) as error:
            if not answers:
                late = f"it did not answer within {LIST_WITHIN_S:g} s."
                why = error.message if isinstance(error, OutliveError) else late
                return self._trouble(server, f"{why}{words}")
        [(raws, is_cut)] = answers
        listing = make_listing(server.name, raws, is_cut=is_cut, at=to_text(self._clock.now()))
        await self._kept.put(key, listing)
        return _Known(now + KEPT_S, listing)

    def _trouble(self, server: McpServer, why: str) -> _Known:
        text = f"The tools of the MCP server {server.name!r} cannot be used now: {why}"
        return _Known(self._clock.monotonic() + TROUBLE_KEPT_S, None, text)


def key_of(server: McpServer, context: ToolContext) -> str:
    """Under which a listing is kept. What a command says is what the conversation's machine makes it say: it is told in
    that conversation and in no other."""
    where = "" if server.command is None else f"{context.conversation}/{context.environment or ''}"
    return hashlib.sha256(f"{server.digest()}/{where}".encode()).hexdigest()
