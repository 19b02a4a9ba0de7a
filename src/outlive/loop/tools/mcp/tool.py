"""A tool of an MCP server, as a turn's tool step runs it.

Rule 1: what breaks before the server hears of the call was never begun: it is rejected, with the reason.
Rule 2: what breaks afterwards is unknown: lost. Only a tool of which its server says that it reads, or that it is
        idempotent, is called again; a step that is tried again counts as broken too.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import anyio
from pydantic import JsonValue

from outlive.base import ConflictError, DeniedError, EffectId, OutliveError
from outlive.conversation.events import ToolCall
from outlive.loop.tools.facts import Runs
from outlive.loop.tools.mcp.client import Data, HttpWay, McpAnswer, McpClient, Question, Way
from outlive.loop.tools.mcp.listing import ListedTool
from outlive.loop.tools.mcp.pipe import MachinePipe, kill, open_pipe
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.results import shown
from outlive.loop.tools.stopping import MAY_HAVE_BEGUN, UNKNOWN, find_or_forestall

_TRIES = 3  # of a tool that may be called again
_LOST = (
    "The MCP server {name!r} broke off in the middle of this call: {why} Whether it happened is unknown; it was not "
    "called again. Look at what is there before you repeat it."
)


class McpTool:
    """A `Tool`. What it does in an attempt after the first is in its own hands: in this sense it is idempotent."""

    is_idempotent = True

    def __init__(self, server: McpServer, listed: ListedTool, client: McpClient) -> None:
        self._server = server
        self._listed = listed
        self._client = client

    @property
    def name(self) -> str:
        return self._listed.name

    @property
    def description(self) -> str:
        return self._listed.description

    @property
    def parameters(self) -> dict[str, JsonValue]:
        return self._listed.parameters

    @property
    def runs(self) -> Runs:
        return self._listed.runs

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if call.error is not None:
            return ToolResult("rejected", f"These arguments do not fit {call.name!r}; nothing was done.\n{call.error}")
        if context.is_again and not self._listed.is_safe and await self._may_have_begun(context):
            return ToolResult("lost", _LOST.format(name=self._server.name, why="its worker died."))
        for tries_left in reversed(range(_TRIES if self._listed.is_safe else 1)):
            result = await self._try(call, context)
            if result.outcome != "lost" or not tries_left:
                break
        return result

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """A server in the machine is ended, and never begun again for this call. What it had heard of is unknown,
        unless it only reads."""
        if self._server.command is not None and not await self._is_ended(context):
            return None
        return None if self._listed.is_read_only else ToolResult("lost", UNKNOWN)

    async def _is_ended(self, context: ToolContext) -> bool:
        """Whether there was one to be ended: of any attempt."""
        for number in count(1):
            found = await find_or_forestall(context, nth(context.effect_id, number))
            if found is None or found[1].is_forestalled:
                return number > 1
            machine, effect = found
            if not effect.is_over:
                await kill(machine, effect.id)
        raise AssertionError("not reached")

    async def _try(self, call: ToolCall, context: ToolContext) -> ToolResult:
        sent: list[bool] = []
        words = ""
        question = Question(
            self._listed.original,
            call.arguments,
            context.effect_id,
            lambda: sent.append(True),
            lambda text: context.say(f"{text}\n", "stdout"),
        )
        answers: list[McpAnswer] = []  # what was answered counts, whatever goes wrong behind it
        try:
            with anyio.fail_after(self._server.timeout_s):
                async with open_way(self._server, context) as way:
                    try:
                        answers.append(await self._client.call(way, question))
                    finally:
                        words = way.last_words() if isinstance(way, MachinePipe) else ""
        except (TimeoutError, OutliveError) as error:
            if not answers:
                return self._broken(error, words, is_sent=bool(sent))
        return await self._told(answers[0], context)

    def _broken(self, error: TimeoutError | OutliveError, words: str, *, is_sent: bool) -> ToolResult:
        if isinstance(error, TimeoutError):
            why = f"it did not answer within {self._server.timeout_s:g} s.{words}"
        elif not error.code.startswith("mcp."):
            raise error
        elif isinstance(error, ConflictError):  # its own answer
            return ToolResult("failed", error.message)
        elif isinstance(error, DeniedError):
            return ToolResult("rejected", error.message)
        else:
            why = f"{error.message}{words}"
        if is_sent:
            return ToolResult("lost", _LOST.format(name=self._server.name, why=why))
        return ToolResult("rejected", f"The MCP server {self._server.name!r} cannot be used: {why} Nothing was done.")

    async def _may_have_begun(self, context: ToolContext) -> bool:
        """The machine's journal knows of a command, but not of one in a machine before it; of a request to an address
        nobody does."""
        if self._server.command is None:
            return True
        machine = await context.machine()
        if context.machines - {machine.id}:
            return True
        return await machine.find(context.effect_id) is not None

    async def _told(self, answer: McpAnswer, context: ToolContext) -> ToolResult:
        texts = [await _kept(each, context) if isinstance(each, Data) else each for each in answer.pieces]
        if not texts and answer.structured is not None:
            texts.append(json.dumps(answer.structured, ensure_ascii=False))
        text, blob = await shown(context, "\n".join(texts))
        return ToolResult("failed" if answer.is_error else "finished", text or "[It answered nothing.]", blob=blob)


class BrokenMcpTool:
    """A tool of a server that cannot be asked what it offers: whoever calls it is told why."""

    is_idempotent = True
    description = ""
    runs: Runs = "in_turn"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.parameters: dict[str, JsonValue] = {}
        self._why = why

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if context.is_again:  # its server may have been there for the attempt before
            return ToolResult("lost", f"{self._why} {MAY_HAVE_BEGUN}")
        return ToolResult("rejected", f"{self._why} Nothing was done.")

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        return ToolResult("lost", UNKNOWN) if context.is_again else None


@asynccontextmanager
async def open_way(server: McpServer, context: ToolContext, effect: EffectId | None = None) -> AsyncIterator[Way]:
    """The way to a server. One that is a command is begun, under the step's effect id, or one more of it."""
    if server.url is not None:
        yield HttpWay(server.url, server.headers)
        return
    machine = await replace(context, machines=frozenset()).machine()  # not one that is gone, though it began there
    first = effect or context.effect_id
    number = 1
    while (found := await machine.find(nth(first, number))) is not None:  # an attempt before this one
        if found.is_forestalled:
            raise ConflictError("effect.forestalled", "A person stopped this before it began.")
        await kill(machine, found.id)
        number += 1
    async with open_pipe(machine, server, nth(first, number)) as pipe:
        yield pipe


def nth(first: EffectId, number: int) -> EffectId:
    """The server of each attempt is an effect of its own."""
    return first if number == 1 else EffectId(f"{first}-{number}")


async def _kept(data: Data, context: ToolContext) -> str:
    name = await context.parts.conversations.blobs.put(data.content)
    return f"[{data.media_type}, {len(data.content):,} bytes, kept as {name}]"
