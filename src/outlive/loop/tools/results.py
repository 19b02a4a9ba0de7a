"""From what a machine's journal says of an effect to what a model is told."""

import anyio.to_thread

from outlive.base import UnavailableError
from outlive.loop.tools.output import bounded
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.status import Effect
from outlive.machine.terminal.plain import plain_text

LOST = (
    "The machine went down while this ran. Whether it happened, and how far it came, is unknown; it was not run again. "
    "Look at what is there before you repeat it."
)


async def shown(context: ToolContext, text: str, note: str = "") -> tuple[str, str | None]:
    """As much of `text` as a model is shown, with `note` at its end; and the blob with all of it, if that is more."""
    end = f"\n[{note}]" if note and text and not text.endswith("\n") else f"[{note}]" if note else ""
    part = bounded(text, context.parts.result_bytes - len(end.encode()))
    blob = None
    if not part.is_whole:
        blob = await context.parts.conversations.blobs.put(text.encode("utf-8", "replace"))
    return part.text + end, blob


async def result_of(context: ToolContext, machine: ToolMachine, effect: Effect, note: str = "") -> ToolResult:
    """What came of a command: an exit code is an end like any other."""
    notes = [note] if note else []
    if effect.cut_bytes:
        notes.append(f"{effect.cut_bytes:,} bytes were printed beyond what is kept, and are gone.")
    if not effect.is_over:
        raise UnavailableError("effect.under_way", "The command goes on; its step is tried again.")
    if effect.state == "lost":
        return ToolResult("lost", LOST)
    if effect.state == "timeout":
        notes.append("It took longer than its timeout and was stopped.")
    elif effect.exit_code:
        notes.append(f"exit code {effect.exit_code}")
    text, blob = await shown(context, await _printed(machine, effect), " ".join(notes))
    return ToolResult("failed" if effect.state == "timeout" else "finished", text, effect.exit_code, blob)


async def _printed(machine: ToolMachine, effect: Effect) -> str:
    stdout = await _whole(machine, effect.stdout, effect.stdout_blob, is_terminal=effect.terminal is not None)
    stderr = await _whole(machine, effect.stderr, effect.stderr_blob, is_terminal=False)
    if not stderr:
        return stdout
    between = "" if not stdout or stdout.endswith("\n") else "\n"
    return f"{stdout}{between}{stderr}"


async def _whole(machine: ToolMachine, inline: str, kept: str | None, *, is_terminal: bool) -> str:
    if kept is None:
        return inline
    content = await machine.read_output(kept)
    if is_terminal:  # the journal's text of it is plain; what is kept is what was printed
        return await anyio.to_thread.run_sync(plain_text, content)
    return content.decode("utf-8", "replace")
