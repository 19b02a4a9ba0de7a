"""`read_file`, `write_file`, `edit_file`: files of the conversation's machine.

Rule 1: what changes a file is an effect of the machine, with the step's id: once done it is not done again, so that a
        retry never undoes what somebody did in between.
Rule 2: a file is changed whole or not at all: written beside its place, as the machine's user, and renamed. A link
        stays a link, and a file keeps its mode.
Rule 3: an edit is made of what was read; if the file is another by then, nothing is changed.
"""

import hashlib
from collections.abc import AsyncIterator

from pydantic import Field

from outlive.conversation.events import ToolCall
from outlive.loop.tools.arguments import Arguments, Path, Text
from outlive.loop.tools.built_in import A, BuiltIn
from outlive.loop.tools.commands import change_once
from outlive.loop.tools.edits import EditRefusal, edited, lines_of
from outlive.loop.tools.paths import as_shown, in_machine
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.reach import ToolMachine
from outlive.loop.tools.results import LOST, shown
from outlive.loop.tools.stopping import stop_change
from outlive.machine.door import STDIN_LIMIT, MachineDoor
from outlive.machine.status import Effect

READ_LIMIT = 8 * 1024 * 1024  # bytes of a file that are looked at
LINES = 2_000  # that are read unless said otherwise
_CHANGED = 9  # exit code of an edit whose file is another by now

# $TARGET is where the file really is; $NEW holds what it shall be, beside it, and takes its place.
_PLACE = """
set -e
TARGET=$(readlink -f -- "$OUTLIVE_PATH" || printf %s "$OUTLIVE_PATH")
if [ -d "$TARGET" ]; then echo "$OUTLIVE_PATH is a directory" >&2; exit 1; fi
FOLDER=$(dirname -- "$TARGET")
mkdir -p -- "$FOLDER"
NEW="$FOLDER/.$OUTLIVE_EFFECT"
trap 'rm -f -- "$NEW"' EXIT
if [ -e "$TARGET" ]; then cp -p -- "$TARGET" "$NEW"; fi
"""
_WRITE = _PLACE + 'cat >"$NEW"\nmv -f -- "$NEW" "$TARGET"\n'
# What the edit comes to, and what it was made of, wait under the effect's id: so the command is the same each time.
_EDIT = (
    _PLACE
    + f"""
trap 'rm -f -- "$NEW" "$OUTLIVE_STAGED" "$OUTLIVE_STAGED.sum"' EXIT
SUM=$(sha256sum <"$TARGET")
if [ "${{SUM%% *}}" != "$(cat -- "$OUTLIVE_STAGED.sum")" ]; then exit {_CHANGED}; fi
cat -- "$OUTLIVE_STAGED" >"$NEW"
mv -f -- "$NEW" "$TARGET"
"""
)


class ReadArguments(Arguments):
    path: Path = Field(description="The file.")
    offset: int = Field(1, ge=1, description="The first line to read, counted from 1.")
    limit: int = Field(LINES, ge=1, le=100_000, description="How many lines.")


class ReadFile(BuiltIn[ReadArguments]):
    name = "read_file"
    description = "Read a text file of the machine. Long files come in parts: go on with `offset`."
    arguments = ReadArguments

    async def act(self, arguments: ReadArguments, context: ToolContext) -> ToolResult:
        machine = await context.machine()
        content = await read_bytes(machine, in_machine(arguments.path), READ_LIMIT + 1)
        if b"\0" in content[:8_192]:
            return ToolResult("failed", f"{arguments.path!r} is not a text file; look at it with the shell.")
        part = lines_of(content[:READ_LIMIT].decode("utf-8", "replace"), arguments.offset, arguments.limit)
        if len(content) > READ_LIMIT:
            part = part._replace(note=f"{part.note} Only the first {READ_LIMIT:,} bytes are looked at.".strip())
        text, blob = await shown(context, part.text, part.note)
        return ToolResult("finished", text, blob=blob)


class _Changing(BuiltIn[A]):
    """Changes a file: what is under way when the turn is stopped happens before its step has an end, or never."""

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        return await stop_change(context)


class WriteArguments(Arguments):
    path: Path = Field(min_length=1, description="The file. Its folders are made.")
    content: Text = Field(description="All that shall be in it.")


class WriteFile(_Changing[WriteArguments]):
    name = "write_file"
    description = "Write a whole file of the machine, a new one or in place of the old."
    arguments = WriteArguments

    async def act(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        content = arguments.content.encode("utf-8", "replace")
        if len(content) > STDIN_LIMIT:
            return ToolResult(
                "rejected", f"content: has {len(content):,} bytes; a file written so has {STDIN_LIMIT:,}."
            )
        machine = await context.machine()
        path = in_machine(arguments.path)
        effect = await change_once(machine, context, _WRITE, _env(path, context), content.decode())
        return _ended(effect, path) or ToolResult("finished", f"Wrote {len(content):,} bytes to {as_shown(path)}.")


class EditArguments(Arguments):
    path: Path = Field(min_length=1, description="The file.")
    old: Text = Field(min_length=1, description="What is there now, exactly, and only once.")
    new: Text = Field(description="What shall be there instead.")
    all: bool = Field(False, description="Replace it wherever it is.")


class EditFile(_Changing[EditArguments]):
    name = "edit_file"
    description = "Replace a piece of text in a file of the machine. `old` must be in it exactly once, unless `all`."
    arguments = EditArguments

    async def act(self, arguments: EditArguments, context: ToolContext) -> ToolResult:
        machine = await context.machine()
        path = in_machine(arguments.path)
        known = await machine.find(context.effect_id)
        if known is None:
            refusal = await self._stage(machine, arguments, context, path)
            if refusal is not None:
                return refusal
        effect = await change_once(machine, context, _EDIT, _env(path, context))
        if effect.exit_code == _CHANGED:
            return ToolResult("failed", f"{as_shown(path)} was changed by somebody meanwhile; read it again.")
        return _ended(effect, path) or ToolResult("finished", f"Edited {as_shown(path)}.")

    async def _stage(
        self, machine: ToolMachine, arguments: EditArguments, context: ToolContext, path: str
    ) -> ToolResult | None:
        before = await read_bytes(machine, path, READ_LIMIT + 1)
        if len(before) > READ_LIMIT:
            return ToolResult("failed", f"{as_shown(path)} has more than {READ_LIMIT:,} bytes; edit it with the shell.")
        after = edited(before, arguments.old, arguments.new, is_all=arguments.all)
        if isinstance(after, EditRefusal):
            return ToolResult("failed", f"{as_shown(path)}: {after.why} Nothing was changed.")
        await _write(machine, _staged(context), after)
        await _write(machine, f"{_staged(context)}.sum", hashlib.sha256(before).hexdigest().encode())
        return None


# ── the machine's files ──


async def read_bytes(machine: ToolMachine, path: str, limit: int) -> bytes:
    """The first `limit` bytes. `file.unknown` and its like are for `run_tool` to tell."""

    async def read(door: MachineDoor, generation: int) -> bytes:
        content = bytearray()
        async with door.read_file(machine.id, generation, path, limit=limit) as pieces:
            async for piece in pieces:
                content += piece
        return bytes(content)

    return await machine.use(read)


async def _write(machine: ToolMachine, path: str, content: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    await machine.use(lambda door, generation: door.write_file(machine.id, generation, path, pieces()))


def _staged(context: ToolContext) -> str:
    return f"/tmp/.{context.effect_id}"  # noqa: S108  in the machine, under a name that only this step has


def _env(path: str, context: ToolContext) -> dict[str, str]:
    return {"OUTLIVE_PATH": path, "OUTLIVE_EFFECT": context.effect_id, "OUTLIVE_STAGED": _staged(context)}


def _ended(effect: Effect, path: str) -> ToolResult | None:
    """Unless it came to its end: then None."""
    if effect.state in ("lost", "timeout"):
        return ToolResult("lost", LOST)
    if effect.exit_code == 0:
        return None
    said = (effect.stderr or effect.stdout).strip()[-1_000:]
    return ToolResult("failed", f"{as_shown(path)} could not be written: {said or effect.exit_code}", effect.exit_code)
