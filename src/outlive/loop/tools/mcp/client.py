"""The port to the Model Context Protocol: asking a server what it offers, and calling one of its tools."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from outlive.base import EffectId
from outlive.loop.tools.mcp.listing import RawTool

ANSWER_LIMIT = 16 * 1024 * 1024  # bytes that a server may say in one exchange
PAGES_LIMIT = 20  # of a list of tools
RAW_TOOLS_LIMIT = 2_000


class Pipe(Protocol):
    """A server that runs as a command: its stdin and stdout."""

    def lines(self) -> AsyncIterator[bytes]:
        """What it prints, line by line, until it ends. `mcp.too_much` (exhausted) if that is too much."""
        ...

    async def send(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpWay:
    url: str
    headers: dict[str, str]


Way = Pipe | HttpWay


class Data(NamedTuple):
    """A picture, a sound, a file."""

    media_type: str
    content: bytes


class McpAnswer(NamedTuple):
    """What a tool answered. `structured` where it said nothing in words."""

    is_error: bool
    pieces: Sequence[str | Data]
    structured: JsonValue = None


class Question(NamedTuple):
    """A call. `on_sent` is told when the server is about to hear of it: before that, nothing was done."""

    tool: str
    arguments: dict[str, JsonValue]
    effect: EffectId
    on_sent: Callable[[], None]
    say: Callable[[str], None]


class McpClient(Protocol):
    """Raises `mcp.error` (conflict) for what the server answered as an error, `mcp.denied` (denied) for a host that is
    not allowed, and `mcp.broken` (unavailable) or `mcp.too_much` (exhausted) when it breaks off. The caller sets the
    deadline."""

    async def list_tools(self, way: Way) -> tuple[Sequence[RawTool], bool]:
        """What it offers, and whether there is more."""
        ...

    async def call(self, way: Way, question: Question) -> McpAnswer: ...
