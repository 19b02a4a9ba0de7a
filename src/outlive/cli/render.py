"""What a conversation looks like as text, for people. Pure: values in, text out.

Rule 1: nothing that a model, a tool or another person wrote reaches the terminal raw. `clean` takes out every control
        character but newline and tab, and what makes text run in another direction than it is stored.
Rule 2: text of a dead attempt is never left standing as if it had been said. A terminal takes it back, a pipe
        cannot and is told (`Terminal` and `Pipe` in `following.py`).
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outlive.cli.asking import table
from outlive.cli.clean import clean as clean
from outlive.cli.clean import clean_line as clean_line
from outlive.cli.clean import json_text as json_text
from outlive.cli.clean import short
from outlive.cli.steps import Tally, Tone, brief, compaction, note_text, tool_step
from outlive.client.view import View
from outlive.client.wire import ConversationFacts, Event

Json = Mapping[str, Any]

_INDENT = "    "
_LEFT_OUT = re.compile(r"\n\[\.\.\. [\d,]+ bytes are left out here \.\.\.\]\n")  # as tools say it
_TITLE_WIDTH = 60


class Block(NamedTuple):
    """Something said or done: a line about it, and what it says."""

    head: str
    body: str
    style: str  # of the head, for a terminal with colours
    tone: Tone = "plain"  # of the body


def block_of(item: Json, *, is_brief: bool = False) -> Block:
    """An item of a transcript or a view. `is_brief`: of what is long only the beginning and the end, and of what the
    next step shows anyway nothing."""
    match item.get("kind"):
        case "message":
            marks = "".join(f" ({name})" for name in ("pinned", "withdrawn") if item.get(name) is True)
            head = f"{_mark(item)} message from {clean_line(item.get('actor'))}{marks}"
            return Block(head, _body(item, "text"), "bold cyan")
        case "answer":
            said = _body(item, "text") if is_brief else _answer(item)
            return Block(f"{_mark(item)} answer{_of(item.get('model'))}{_state(item)}", said, "bold green")
        case "tool":
            done = tool_step(item)
            head = f"{_mark(item)} {done.title}{_outcome(item)}{_state(item)}"
            body = brief(done.body) if is_brief else done.body
            return Block(head, body, "bold yellow" if _is_well(item) else "bold red", done.tone)
        case "compaction":
            said = _body(item, "summary")
            return Block(
                f"{_mark(item)} {compaction(item)}{_state(item)}", brief(said) if is_brief else said, "bold", "dim"
            )
        case _:
            style = "magenta" if item.get("type") == "artifact.published" else "dim"
            return Block(f"{_mark(item)} {note_text(item)}", "", style)


def _is_well(item: Json) -> bool:
    return item.get("outcome") in (None, "finished") and item.get("exit_code") in (None, 0)


def _mark(item: Json) -> str:
    seq = item.get("seq")
    return f"[{seq}]" if isinstance(seq, int) else "[ ]"


def _of(name: object) -> str:
    return f" of {clean_line(name).removesuffix(':')}" if name else ""  # the demo model's is no name but a provider's


def _state(item: Json) -> str:
    attempts = item.get("attempts")
    state = {"open": " (going on)", "abandoned": " (never finished)"}.get(str(item.get("state")), "")
    return f"{state} (attempt {item.get('attempt')})" if isinstance(attempts, int) and attempts > 1 else state


def _outcome(item: Json) -> str:
    outcome, code = item.get("outcome"), item.get("exit_code")
    said = [] if outcome in (None, "finished") else [clean_line(outcome)]
    said += [f"exit code {code}"] if isinstance(code, int) and (code or said) else []
    return f": {', '.join(said)}" if said else ""


def _answer(item: Json) -> str:
    calls = item.get("tool_calls")
    lines = [_body(item, "text")] if item.get("text") else []
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        lines.extend(f"→ {clean_line(call.get('name'))} {short(call.get('arguments'))}" for call in calls)
    return "\n".join(lines)


def _body(item: Json, field: str) -> str:
    return clean(str(item.get(field) or "")).rstrip("\n")


def plain(block: Block) -> str:
    """A block for a pipe: the head, and the body indented."""
    if not block.body:
        return f"{block.head}\n"
    return f"{block.head}\n{_INDENT}{_indented(block.body)}\n"


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")


# ── one conversation, many conversations ──


def facts_lines(facts: ConversationFacts) -> list[str]:
    """What there is to say about a conversation, one line each."""
    parent = facts.parent
    rows = [
        ("id", facts.id),
        ("title", facts.title),
        ("state", facts.state + (", archived" if facts.archived_at else "")),
        ("agent", facts.agent),
        ("machine", facts.machine),
        ("forked from", f"{parent.get('conversation')} at {parent.get('at')}" if parent else None),
        ("subagent of", of.get("conversation") if (of := facts.subagent_of) else None),
        ("events", facts.head),
        ("created", f"{when(facts.created_at)} by {facts.created_by}"),
        ("changed", when(facts.updated_at)),
    ]
    return [f"{name:<12}{clean_line(value)}" for name, value in rows if value is not None]


class Row(NamedTuple):
    id: str
    state: str
    events: str
    changed: str
    title: str


HEADINGS = Row("ID", "STATE", "EVENTS", "CHANGED", "TITLE")


def row_of(facts: ConversationFacts) -> Row:
    title = ("↳ " if facts.subagent_of else "") + clean_line(facts.title or "")
    title = title if len(title) <= _TITLE_WIDTH else title[: _TITLE_WIDTH - 1] + "…"
    return Row(clean_line(facts.id), clean_line(facts.state), str(facts.head), when(facts.updated_at), title)


def when(at: str | None) -> str:
    """A moment of the wire as people read it, to the second. UTC, and says so."""
    return f"{clean_line(at)[:19].replace('T', ' ')}Z" if at else "-"


def plain_table(rows: Sequence[Row]) -> str:
    """Columns of one width, the last one free."""
    return table(HEADINGS, rows)


# ── following into a pipe ──


class PipeFollow:
    """Text for each event of a stream, for an output that cannot be taken back.

    Live text is written as it comes. The seal only ends it if it is what the seal says; else the whole is said again.
    """

    def __init__(self) -> None:
        self._view = View()
        self._tally = Tally()
        self._step: str | None = None  # the step whose live text is being written: the line is not ended
        self._written: dict[str, str] = {}  # live text so far, by open step

    def show(self, event: Event) -> str:
        said = self._show(event)
        total = self._tally.take(event)
        return said if total is None else f"{said}{self._break()}{total}\n"

    def say(self, text: str) -> str:
        """A line of somebody else's, in between."""
        return f"{self._break()}{text}\n"

    def _show(self, event: Event) -> str:
        item = self._view.fold(event)
        step = event.step or ""
        match event.type:
            case "model.delta" | "tool.output":
                return self._stream(step, event)
            case "step.rewound":
                self._written.pop(step, None)
                return f"{self._break()}… attempt {event.attempt} of the step begins, forget the text above\n"
        if item is None:
            return ""
        if item["kind"] in ("answer", "tool", "compaction"):
            rest = _not_written(item, self._written.pop(step, ""))
            if rest is not None:
                above = "" if item["kind"] == "tool" else ", as above"
                return (
                    self._break() + "".join(f"{_INDENT}{line}\n" for line in rest) + f"{block_of(item).head}{above}\n"
                )
        return self._break() + plain(block_of(item))

    def _stream(self, step: str, event: Event) -> str:
        text = clean(str(event.data.get("text", "")))
        start = ""
        if self._step != step:
            start = f"{self._break()}[…] {self._doing(step, event)}, live\n{_INDENT}"
            self._step = step
        self._written[step] = self._written.get(step, "") + text
        return start + _indented(text)

    def _doing(self, step: str, event: Event) -> str:
        found = next((item for item in self._view.open_items() if item["step"] == step), None)
        if event.type != "tool.output":
            return "summary" if found is not None and found["kind"] == "compaction" else "answer"
        return tool_step(found).title if found else "output"

    def _break(self) -> str:
        """End the line of live text that is being written."""
        was, self._step = self._step, None
        return "" if was is None else "\n"


def _not_written(item: Json, written: str) -> list[str] | None:
    """The lines that are missing after live text; None if that was not all of what came before them."""
    if item["kind"] == "answer":
        return _answer({**item, "text": ""}).splitlines() if written.rstrip("\n") == _body(item, "text") != "" else None
    if item["kind"] == "compaction":
        return [] if written.rstrip("\n") == _body(item, "summary") != "" else None
    lines = _body(item, "output").split("\n")
    said = len(lines)
    while said and not _is_written("\n".join(lines[:said]).rstrip("\n"), written):
        if not lines[said - 1].startswith("["):  # what the tool says about the output is at its end
            return None
        said -= 1
    return lines[said:] if said else None


def _is_written(output: str, written: str) -> bool:
    """Whether live text holds all of an output: whole, or both sides of what was left out of it. A shell's prompt may
    come after it."""
    head, *rest = _LEFT_OUT.split(output, maxsplit=1)
    if rest:
        return written.startswith(head) and rest[0] in written[len(head) :]
    return output != "" and f"{written}\n".startswith(f"{output}\n")


# ── following on a terminal ──


def tail_lines(text: str, width: int, height: int) -> list[str]:
    """The last lines of `text` as a terminal of that size breaks them: what a live region can show and take back."""
    lines: list[str] = []
    for line in text.split("\n")[-height:]:
        lines.extend(textwrap.wrap(line.expandtabs(8), max(1, width)) or [""])
    return lines[-height:]
