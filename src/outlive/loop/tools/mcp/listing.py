"""What an MCP server offers, as a model is told: bounded, whatever the server says. Pure.

Rule 1: a model sees `server__tool`. What a provider would not take as a name is spelt so that it does, and no two are
        spelt the same.
Rule 2: what is too much is left out, and that is said.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue

from outlive.loop.tools.facts import Runs

TOOLS_LIMIT = 100  # of one server
SCHEMA_LIMIT = 32 * 1024  # characters of one tool's schema
SCHEMAS_LIMIT = 256 * 1024  # of all of a server's
DESCRIPTION_LIMIT = 4 * 1024
DEPTH_LIMIT = 30  # of a schema
_NAME_LIMIT = 64
_NOTED = 5  # names in a note
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class RawTool(NamedTuple):
    """As the server says it."""

    name: str
    description: str
    schema: Any
    is_read_only: bool = False
    is_idempotent: bool = False


class ListedTool(BaseModel):
    """As the model is told it. `original` is what the server calls it."""

    model_config = ConfigDict(frozen=True)

    name: str
    original: str
    description: str
    parameters: dict[str, JsonValue]
    is_read_only: bool = False
    is_idempotent: bool = False

    @property
    def is_safe(self) -> bool:
        """Whether the server says that calling it again changes nothing more."""
        return self.is_read_only or self.is_idempotent

    @property
    def runs(self) -> Runs:
        return "parallel" if self.is_read_only else "in_turn"


class Listing(BaseModel):
    """`notes` say what was left out. `at` is when the server was asked."""

    model_config = ConfigDict(frozen=True)

    tools: tuple[ListedTool, ...]
    notes: tuple[str, ...] = ()
    at: str = ""


def make_listing(server: str, raws: Sequence[RawTool], *, is_cut: bool, at: str) -> Listing:
    """`is_cut`: the server had more than it was asked for."""
    tools: list[ListedTool] = []
    left_out: dict[str, list[str]] = {}
    taken: set[str] = set()
    seen: set[str] = set()
    room = SCHEMAS_LIMIT
    for raw in sorted(raws, key=lambda each: each.name):
        size, why = _judge(raw, room, len(tools))
        name = told_name(server, raw.name, taken)
        if why is None and (raw.name in seen or name in taken):
            why = "their names are taken"
        if why is not None:
            left_out.setdefault(why, []).append(raw.name[:_NAME_LIMIT])
            continue
        seen.add(raw.name)
        taken.add(name)
        room -= size
        tools.append(
            ListedTool(
                name=name,
                original=raw.name,
                description=_description(raw),
                parameters=raw.schema,
                is_read_only=raw.is_read_only,
                is_idempotent=raw.is_idempotent,
            )
        )
    notes = [_note(server, why, names) for why, names in left_out.items()]
    if is_cut:
        notes.append(f"The MCP server {server!r} offers more tools than were looked at.")
    return Listing(tools=tuple(tools), notes=tuple(notes), at=at)


def told_name(server: str, original: str, taken: set[str]) -> str:
    """`server__tool`, in letters that every provider takes, at most 64 of them, and none that is taken."""
    plain = f"{server}__{_NOT_IN_A_NAME.sub('_', original)}"
    if plain.isascii() and len(plain) <= _NAME_LIMIT and plain not in taken and plain == f"{server}__{original}":
        return plain
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain[: _NAME_LIMIT - 9]}-{mark}"


def server_of(name: str) -> str | None:
    """The server that a model's name for a tool belongs to."""
    server, between, tool = name.partition("__")
    return server if between and tool else None


def _judge(raw: RawTool, room: int, count: int) -> tuple[int, str | None]:
    if not raw.name or len(raw.name) > 256:
        return 0, "their names are empty or too long"
    if not isinstance(raw.schema, dict) or raw.schema.get("type") != "object":
        return 0, "their arguments are no object"
    if _depth(raw.schema) > DEPTH_LIMIT:
        return 0, "their schemas are too deep"
    size = len(json.dumps(raw.schema))
    if size > SCHEMA_LIMIT:
        return 0, "their schemas are too long"
    if count >= TOOLS_LIMIT or size > room:
        return 0, "there are too many of them"
    return size, None


def _depth(value: Any) -> int:
    """How deep it goes, as far as that matters. Without recursion: it is a stranger's."""
    level, depth = [value], 0
    while level and depth <= DEPTH_LIMIT:
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(inner, dict | list)
        ]
        depth += 1
    return depth


def _description(raw: RawTool) -> str:
    text = raw.description.encode("utf-8", "replace").decode().strip() or raw.name
    return text if len(text) <= DESCRIPTION_LIMIT else text[:DESCRIPTION_LIMIT] + " [cut]"


def _note(server: str, why: str, names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NOTED]) + (", ..." if len(names) > _NOTED else "")
    return f"{len(names)} tools of the MCP server {server!r} are left out, since {why}: {shown}."
