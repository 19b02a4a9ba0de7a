"""`list_files` and `search`: finding things in the conversation's machine. They change nothing.

Folders that hold what others made (`.git`, `node_modules` and their like) are left out of what is searched, unless the
path leads into one.
"""

from fnmatch import fnmatchcase

from pydantic import Field

from outlive.loop.tools.arguments import Arguments, Path, Text
from outlive.loop.tools.built_in import BuiltIn
from outlive.loop.tools.commands import look
from outlive.loop.tools.paths import as_shown, in_machine
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.results import LOST, shown
from outlive.machine.door import FileEntry
from outlive.machine.status import Effect

LEFT_OUT = (".git", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".tox")
ENTRIES_LIMIT = 2_000  # that are shown
FOUND_LIMIT = 50_000  # files that are looked at for a glob
MATCHES_LIMIT = 500
_COLUMNS = 400  # of a line that was found

_PRUNE = " -o ".join(f"-name {name}" for name in LEFT_OUT)
_FIND = rf"""
cd -- "$OUTLIVE_PATH" || exit 2
find . -mindepth 1 \( -type d \( {_PRUNE} \) -prune \) -o -type f -print 2>/dev/null | head -n {FOUND_LIMIT}
"""
_EXCLUDE = " ".join(f"--exclude-dir={name}" for name in LEFT_OUT)
# 1: nothing found. 141: `head` has seen enough.
_GREP = rf"""
if [ ! -e "$OUTLIVE_PATH" ]; then echo "there is no such file or directory" >&2; exit 2; fi
export LC_ALL=C.UTF-8
grep -rnHIE {_EXCLUDE} -e "$OUTLIVE_PATTERN" -- "$OUTLIVE_PATH" | head -n {MATCHES_LIMIT + 1} | cut -c 1-{_COLUMNS}
codes=(${{PIPESTATUS[@]}})
if [ "${{codes[0]}}" = 141 ]; then exit 0; fi
exit "${{codes[0]}}"
"""


class ListArguments(Arguments):
    path: Path = Field("", description="The folder. Unless given: the working directory.")
    glob: Text | None = Field(
        None, min_length=1, max_length=500, description="List all files below it that fit, such as `**/*.py` or `*.md`."
    )


class ListFiles(BuiltIn[ListArguments]):
    name = "list_files"
    description = "List a folder of the machine; with `glob`, the files below it that fit."
    arguments = ListArguments

    async def act(self, arguments: ListArguments, context: ToolContext) -> ToolResult:
        machine = await context.machine()
        path = in_machine(arguments.path)
        if arguments.glob is None:
            entries = await machine.use(lambda door, generation: door.list_files(machine.id, generation, path))
            lines = sorted(line_of(entry) for entry in entries)
        else:
            found = await look(machine, context, _FIND, {"OUTLIVE_PATH": path})
            if found.state != "finished":
                return _unknown(found)
            if found.exit_code == 2:
                return ToolResult("failed", f"There is no folder {as_shown(path)!r}.")
            names = (line.removeprefix("./") for line in found.stdout.splitlines())
            lines = sorted(name for name in names if fits(name, arguments.glob))
        if not lines:
            return ToolResult("finished", "[Nothing fits.]" if arguments.glob else "[The folder is empty.]")
        left_out = len(lines) - ENTRIES_LIMIT
        note = f"{left_out:,} more are left out." if left_out > 0 else ""
        text, blob = await shown(context, "\n".join(lines[:ENTRIES_LIMIT]) + "\n", note)
        return ToolResult("finished", text, blob=blob)


class SearchArguments(Arguments):
    pattern: Text = Field(min_length=1, max_length=2_000, description="An extended regular expression, as of grep -E.")
    path: Path = Field("", description="The file or folder. Unless given: the working directory.")


class Search(BuiltIn[SearchArguments]):
    name = "search"
    description = "Search the text files of the machine by a regular expression: path, line number and line of each."
    arguments = SearchArguments

    async def act(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        if "\n" in arguments.pattern:
            return ToolResult("rejected", "pattern: holds a line end; what is searched is one line at a time.")
        machine = await context.machine()
        path = in_machine(arguments.path)
        env = {"OUTLIVE_PATH": path, "OUTLIVE_PATTERN": arguments.pattern}
        found = await look(machine, context, _GREP, env)
        if found.state != "finished":
            return _unknown(found)
        if found.exit_code not in (0, 1) and not found.stdout:
            return ToolResult("failed", f"The search failed: {found.stderr.strip()[-1_000:]}", found.exit_code)
        lines = [as_shown(line) for line in found.stdout.splitlines()]
        if not lines:
            return ToolResult("finished", "[Nothing fits.]")
        note = f"Only the first {MATCHES_LIMIT} are shown." if len(lines) > MATCHES_LIMIT else ""
        text, blob = await shown(context, "\n".join(lines[:MATCHES_LIMIT]) + "\n", note)
        return ToolResult("finished", text, blob=blob)


def _unknown(found: Effect) -> ToolResult:
    if found.state == "lost":
        return ToolResult("lost", LOST)
    return ToolResult("failed", "The search took too long; search a smaller part.")


# ── pure ──


def line_of(entry: FileEntry) -> str:
    name = entry.name.encode("utf-8", "replace").decode()
    match entry.kind:
        case "directory":
            return f"{name}/"
        case "symlink":
            return f"{name} -> {(entry.target or '').encode('utf-8', 'replace').decode()}"
        case "file":
            return f"{name} ({entry.size:,} bytes)"
        case _:
            return f"{name} (special)"


def fits(path: str, glob: str) -> bool:
    """As shells and `.gitignore` have it: `*` within a name, `**` across folders; without a slash it is for names at
    any depth. In time linear in the path for each piece of the glob, whatever that is."""
    pieces = [piece for piece in glob.split("/") if piece not in ("", ".")]
    if len(pieces) == 1:
        pieces = ["**", *pieces]
    reached = _past_folders({0}, pieces)
    for name in path.split("/"):
        stays = {at for at in reached if at < len(pieces) and pieces[at] == "**"}
        moves = {at + 1 for at in reached if at < len(pieces) and pieces[at] != "**" and fnmatchcase(name, pieces[at])}
        reached = _past_folders(stays | moves, pieces)
    return len(pieces) in reached


def _past_folders(reached: set[int], pieces: list[str]) -> set[int]:
    """`**` also stands for no folder at all."""
    for at, piece in enumerate(pieces):
        if at in reached and piece == "**":
            reached.add(at + 1)
    return reached
