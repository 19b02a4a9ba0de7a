"""The Model Context Protocol by its official SDK. Nothing of the SDK leaves this file.

Rule 1: a server is a stranger. What it says is bounded before it is parsed, what it sends that is no message is passed
        over, and whatever goes wrong is one of our errors.
Rule 2: an answer is an answer: nothing is asked after it, and no schema of the server's is run over it.
Rule 3: an address is asked only if the settings list its host, and is connected to exactly where that was judged to
        lead (`mcp_http`).
The SDK is imported when it is first needed, in a thread.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from outlive.base import ConflictError, OutliveError, UnavailableError
from outlive.governance.egress import EgressRules
from outlive.governance.egress_dial import Dialer
from outlive.loop.backends.mcp_http import Heard, judge, open_http
from outlive.loop.tools.mcp.client import (
    ANSWER_LIMIT,
    PAGES_LIMIT,
    RAW_TOOLS_LIMIT,
    Data,
    HttpWay,
    McpAnswer,
    Question,
    Way,
)
from outlive.loop.tools.mcp.listing import RawTool

if TYPE_CHECKING:
    import mcp
    from mcp.client import Transport

    from outlive.loop.tools.mcp.client import Pipe

T = TypeVar("T")

EFFECT_KEY = "dev.outlive/effect"  # in the metadata of a call: a server that keeps such keys does nothing twice
_MESSAGE_LIMIT = 4_000
_CLOSE_WITHIN_S = 2.0  # once there is an answer


class SdkMcpClient:
    """`rules`: the hosts that may be asked. `dialer` finds out where they are."""

    def __init__(self, rules: EgressRules, dialer: Dialer) -> None:
        self._rules = rules
        self._dialer = dialer

    async def list_tools(self, way: Way) -> tuple[Sequence[RawTool], bool]:
        async def ask(client: "mcp.Client") -> tuple[Sequence[RawTool], bool]:
            raws: list[RawTool] = []
            cursor: str | None = None
            for _ in range(PAGES_LIMIT):
                page = await client.list_tools(cursor=cursor)
                raws += [_raw(each) for each in page.tools]
                cursor = page.next_cursor
                if cursor is None or len(raws) > RAW_TOOLS_LIMIT:
                    break
            return raws[:RAW_TOOLS_LIMIT], cursor is not None or len(raws) > RAW_TOOLS_LIMIT

        return await self._ask(way, ask)

    async def call(self, way: Way, question: Question) -> McpAnswer:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            if message:
                question.say(message[:_MESSAGE_LIMIT])

        async def ask(client: "mcp.Client") -> McpAnswer:
            question.on_sent()
            meta = cast("Any", {EFFECT_KEY: question.effect})
            result = await client.call_tool(question.tool, dict(question.arguments), progress_callback=tell, meta=meta)
            pieces = [piece for block in result.content for piece in _pieces(block)]
            return McpAnswer(result.is_error, pieces, result.structured_content)

        return await self._ask(way, ask)

    async def _ask(self, way: Way, ask: Callable[["mcp.Client"], Awaitable[T]]) -> T:
        """What it answers. That is kept whatever becomes of the connection afterwards, and of who waits for it."""
        sdk = await anyio.to_thread.run_sync(_import_sdk)
        answers: list[T] = []
        troubles: list[OutliveError] = []
        heard = Heard()
        try:
            with anyio.CancelScope() as scope:
                async with AsyncExitStack() as stack:
                    transport = await self._transport(way, stack, troubles, heard)
                    client = await stack.enter_async_context(
                        sdk.Client(transport, cache=None, client_info=sdk.Implementation(name="outlive", version="1"))
                    )
                    client.session.validate_tool_result = _trust
                    try:
                        answers.append(await ask(client))
                    except sdk.MCPError as error:  # inside: a task group would wrap it
                        troubles.append(_told(error, heard))
                    scope.shield = True  # now there is something to lose
                    scope.deadline = anyio.current_time() + _CLOSE_WITHIN_S
        except OutliveError:
            if not answers:
                raise
        except Exception as error:  # noqa: BLE001  # of an SDK that a stranger feeds
            if not answers:
                troubles.append(_broken(error))
        if answers:
            return answers[0]
        raise troubles[0]

    async def _transport(
        self, way: Way, stack: AsyncExitStack, troubles: list[OutliveError], heard: Heard
    ) -> "Transport":
        if not isinstance(way, HttpWay):
            return _pipe_transport(way, troubles)
        from mcp.client.streamable_http import streamable_http_client

        place = await judge(way.url, self._rules, self._dialer)
        http = await stack.enter_async_context(open_http(place, way.headers, heard))
        return streamable_http_client(way.url, http_client=http, max_sse_event_size=ANSWER_LIMIT)


@asynccontextmanager
async def _pipe_transport(pipe: "Pipe", troubles: list[OutliveError]) -> AsyncIterator[Any]:
    """Messages as lines. When the pipe ends, or breaks, the session sees the end of what it reads."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        try:
            async with incoming:
                async for line in pipe.lines():
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        continue  # a banner, a log line: some print those
                    await incoming.send(SessionMessage(message))
        except OutliveError as error:
            troubles.append(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more

    async def send() -> None:
        try:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await pipe.send(text.encode() + b"\n")
        except OutliveError as error:
            troubles.append(error)
            incoming.close()

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(send)
        try:
            yield read, write
        finally:
            for stream in (read, write, incoming, outgoing):
                stream.close()
            group.cancel_scope.cancel()


# ── the SDK's shapes ──


def _import_sdk() -> Any:
    from types import SimpleNamespace

    import mcp
    from mcp.shared.exceptions import MCPError
    from mcp_types import Implementation

    return SimpleNamespace(Client=mcp.Client, MCPError=MCPError, Implementation=Implementation)


async def _trust(name: str, result: Any) -> None:
    """In place of the SDK's own judgement of a result, which would ask the server for its list of tools, and match on
    our event loop whatever patterns stand in its schema: some never end."""


def _raw(tool: Any) -> RawTool:
    hints = tool.annotations
    return RawTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        is_read_only=bool(hints and hints.read_only_hint),
        is_idempotent=bool(hints and hints.idempotent_hint),
    )


def _pieces(block: Any) -> list[str | Data]:
    match block.type:
        case "text":
            return [block.text]
        case "image" | "audio":
            return [_decoded(block.mime_type, block.data)]
        case "resource_link":
            return [f"[{block.name}: {block.uri}]"]
        case "resource":
            resource = block.resource
            if (text := getattr(resource, "text", None)) is not None:
                return [text]
            return [_decoded(resource.mime_type or "application/octet-stream", resource.blob)]
        case other:
            return [f"[something of the type {str(other)[:100]!r} that cannot be shown]"]


def _decoded(media_type: str, text: str) -> str | Data:
    try:
        return Data(media_type[:100], base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return f"[{media_type[:100]} that cannot be decoded]"


def _told(error: Any, heard: Heard) -> OutliveError:
    """What the server answered; or that it broke off or answered nothing, which the SDK tells in the same way."""
    from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT

    if heard.doubt is not None:
        return UnavailableError("mcp.broken", f"{heard.doubt}.")
    if error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT) or (heard.is_stream and error.code == PARSE_ERROR):
        return _broken(error)
    return ConflictError("mcp.error", f"The MCP server answered with an error: {error.message[:_MESSAGE_LIMIT]}")


def _broken(error: BaseException) -> UnavailableError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    what = (str(error).splitlines() or [""])[0][:300] or type(error).__name__
    return UnavailableError("mcp.broken", f"the connection broke off ({what}).")
