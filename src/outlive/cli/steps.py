"""Tool steps, notes and the sum of a turn as people read them: what was done, not how it was said. Pure.

Nothing that others wrote leaves here uncleaned (rule 1 of `render.py`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from outlive.cli.clean import clean, clean_line, short, to_the_letter
from outlive.client.wire import Event

Json = Mapping[str, Any]
Tone = Literal["plain", "dim", "diff"]

BRIEF_HEAD = 8  # lines of a long text that are shown: so many of its beginning,
BRIEF_TAIL = 14  # and so many of its end
LINE_LIMIT = 400  # characters of one line

_VERBS = {
    "read_file": "read",
    "write_file": "write",
    "edit_file": "edit",
    "list_files": "list",
    "search": "search",
    "publish": "publish",
}


class Done(NamedTuple):
    """What a tool step comes to: a line, and a text in a tone."""

    title: str
    body: str
    tone: Tone


def tool_step(item: Json) -> Done:
    name, given = item.get("name"), item.get("arguments")
    arguments: Json = given if isinstance(given, Mapping) else {}
    output = clean(str(item.get("output") or "")).rstrip("\n")
    title = _title(str(name), arguments) or f"tool of {clean_line(name)}" + (f" {short(given)}" if given else "")
    if name in ("edit_file", "write_file") and item.get("outcome") in (None, "finished"):
        return Done(title, _diff(arguments), "diff")
    if name == "publish" and item.get("outcome") == "finished":
        return Done(title, "", "dim")  # that it was published is an event of its own
    return Done(title, output, "diff" if output.startswith(("diff --git ", "--- ")) else "dim")


def _title(name: str, arguments: Json) -> str | None:
    if name == "shell" and "command" in arguments:
        background = " &" if arguments.get("background") is True else ""
        return f"$ {short(arguments['command'])}{background}"
    verb = _VERBS.get(name)
    if verb is None:
        return None
    what = [short(arguments[field]) for field in ("pattern", "path", "glob") if arguments.get(field)]
    return " ".join([verb, *what])


def _diff(arguments: Json) -> str:
    """What is taken out and what is put in, line by line."""
    old, new = (clean(str(arguments.get(field) or "")) for field in ("old", "new"))
    if "content" in arguments:
        old, new = "", clean(str(arguments["content"]))
    lines = [f"- {line}" for line in old.split("\n")] if old else []
    lines += [f"+ {line}" for line in new.rstrip("\n").split("\n")] if new else []
    return "\n".join(lines)


def brief(text: str) -> str:
    """The beginning and the end of a long text, and how much is between."""
    lines = text.split("\n")
    if len(lines) > BRIEF_HEAD + BRIEF_TAIL + 1:
        left_out = len(lines) - BRIEF_HEAD - BRIEF_TAIL
        lines = [*lines[:BRIEF_HEAD], f"… {left_out} lines …", *lines[-BRIEF_TAIL:]]
    return "\n".join(line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]}…" for line in lines)


def compaction(item: Json) -> str:
    """What a compaction came to, in a line."""
    match item.get("outcome"):
        case None:
            return "compaction: what is old is summarised"
        case "compacted":
            sizes = f"about {_number(item.get('before'))} tokens before, {_number(item.get('after'))} after"
            return f"compaction: {_number(item.get('parts'))} parts are told by a summary from here on ({sizes})"
        case outcome:
            return f"compaction: {clean_line(outcome)}{_because(item)}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


# ── notes ──


def note_text(item: Json) -> str:
    """What an event that is neither said nor done by a step comes to."""
    given = item.get("data")
    data: Json = given if isinstance(given, Mapping) else {}
    type, actor = str(item.get("type")), item.get("actor")
    return _known_note(type, data, actor) or _steering_note(type, data, actor) or _any_note(item.get("type"), data)


def _known_note(type: str, data: Json, actor: object) -> str | None:
    machine = clean_line(data.get("machine", ""))
    match type:
        case "machine.attached" | "machine.hibernated" | "machine.woken" | "machine.rebooted" | "machine.lost":
            return f"machine {machine}: {type.removeprefix('machine.')}"
        case "machine.forked":
            ahead = data.get("ahead")
            later = len(ahead) if isinstance(ahead, list) else 0
            told = f"; it also holds what {later} later steps did" if later else ""
            return f"machine {machine}: a copy of {clean_line(data.get('origin'))}{told}"
        case "machine.rolled_back":
            effects = data.get("effects")
            gone = len(effects) if isinstance(effects, list) else 0
            return f"machine {machine}: rolled back; what {gone} of its last steps did is gone"
        case "artifact.published":
            facts = f"{clean_line(data.get('media_type'))}, {_size(data.get('size'))}"
            return f"published: {clean_line(data.get('title'))} ({facts}) {clean_line(data.get('artifact'))}"
        case "turn.recovered" if data.get("what") == "step_retried":
            return f"↺ attempt {clean_line(data.get('attempt'))}: {clean_line(data.get('reason'))}"
        case "turn.recovered":
            what = clean_line(data.get("what")).replace("_", " ")
            return f"↺ mended ({what}): {clean_line(data.get('reason'))}"
        case "model.fallback":
            then = f"{clean_line(data.get('model'))} is asked instead of {clean_line(data.get('before'))}"
            return f"↺ attempt {clean_line(data.get('attempt'))}: {then}{_because(data)}"
        case "model.changed":
            whole = " in this conversation" if data.get("scope") == "conversation" else ""
            return f"from now on {clean_line(data.get('model'))} is asked{whole}"
        case "compaction.requested":
            return _COMPACTIONS.get(str(data.get("reason")), "a compaction was asked for")
        case "replay.started":
            of = f"{clean_line(data.get('turn'))} of {clean_line(data.get('conversation'))}"
            return f"a replay of {of} on {clean_line(data.get('model'))}"
        case "replay.parted":
            then = "from here on it is really done" if data.get("execute") else "nothing more is done"
            return f"≠ parts from the recording at {clean_line(data.get('name'))}: {then}"
        case "message.withdrawn":
            return f"{clean_line(data.get('message'))} was withdrawn by {clean_line(actor)}"
        case "queue.ordered":
            order = data.get("order")
            number = len(order) if isinstance(order, list) else 0
            return f"{number} messages that wait were put in another order by {clean_line(actor)}"
        case "turn.interrupted":
            return f"interrupted by {clean_line(actor)}{_because(data)}"
        case "turn.finished":
            return f"the turn ended: {clean_line(data.get('outcome')).replace('_', ' ')}{_because(data)}"
        case _:
            return None


def _steering_note(type: str, data: Json, actor: object) -> str | None:
    match type:
        case "approval.requested":
            id = clean_line(data.get("approval"))
            # First what is ours: what others wrote must not be able to look like it.
            proposal = f" (proposed: {to_the_letter(data['proposal'])})" if data.get("proposal") else ""
            question = f"{to_the_letter(data.get('question'))}{proposal}"
            return f"? {id} (outlive approve or deny; --comment is the answer): {question}"
        case "approval.decided":
            said = _DECISIONS.get(str(data.get("decision")), clean_line(data.get("decision")))
            by = "" if data.get("decision") == "expired" else f" by {clean_line(actor)}"
            comment = f": {clean_line(data['comment'])}" if data.get("comment") else ""
            return f"{clean_line(data.get('approval'))} {said}{by}{comment}"
        case "wait.started":
            return f"waits until {clean_line(data.get('until'))}, or until a message comes"
        case "turn.paused":
            return f"paused by {clean_line(actor)} from the next step on{_because(data)}"
        case "turn.resumed":
            return f"resumed by {clean_line(actor)}"
        case "subagent.started":
            on = {"fork": "a copy of the machine", "new": "a machine of its own"}.get(str(data.get("machine")))
            alone = " detached," if data.get("detached") is True else ""
            return f"subagent {clean_line(data.get('conversation'))} begins,{alone} on {on or 'the same machine'}"
        case "subagent.finished":
            return f"subagent {clean_line(data.get('conversation'))} ended: {clean_line(data.get('outcome'))}"
        case _:
            return None


_DECISIONS = {"approve": "was approved", "deny": "was denied", "expired": "expired"}

_COMPACTIONS = {
    "asked": "a compaction was asked for: it comes before the next step",
    "full": "the conversation is as long as the model can read: what is old is summarised first",
    "too_long": "the provider finds the conversation too long: what is old is summarised first",
}


def _any_note(type: object, data: Json) -> str:
    said = ", ".join(f"{clean_line(name)}={short(value)}" for name, value in data.items() if value is not None)
    return f"{clean_line(type)}{': ' if said else ''}{said}"


def _because(data: Json) -> str:
    return f": {clean_line(data['reason'])}" if data.get("reason") else ""


def _size(size: object) -> str:
    if not isinstance(size, int):
        return "?"
    return f"{size:,} bytes" if size < 10_000 else f"{size / 1_000_000:,.2f} MB"


# ── what a turn came to ──


class Tally:
    """Counts a turn while it is followed; says what it came to when it ends."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._started_at: str | None = None
        self._answers = self._tools = self._retries = 0
        self._tokens = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0}
        self._cost = 0.0
        self._is_cost_whole = True

    def take(self, event: Event) -> str | None:
        """The sum, with the event that ends the turn."""
        match event.type:
            case "turn.started":
                self._begin()
                self._started_at = event.at
            case "step.started" if (event.attempt or 1) > 1:
                self._retries += 1
            case "model.responded":
                self._answers += 1
                usage = event.data.get("usage")
                self._add(usage if isinstance(usage, Mapping) else {})
            case "compaction.finished":
                usage = event.data.get("usage")
                self._add(usage if isinstance(usage, Mapping) else {})
            case "tool.finished":
                self._tools += 1
            case "turn.finished":
                said = self._sum(event)
                self._begin()
                return said
            case _:
                pass
        return None

    def _add(self, usage: Json) -> None:
        for name in self._tokens:
            if isinstance(count := usage.get(name), int):
                self._tokens[name] += count
        if isinstance(cost := usage.get("cost_usd"), int | float):
            self._cost += cost
        else:
            self._is_cost_whole = False  # unknown is not free

    def _sum(self, event: Event) -> str:
        said = [_counted(self._answers, "answer"), _counted(self._tools, "tool call")]
        if self._retries:
            said.append(_counted(self._retries, "retry", "retries"))
        cached = self._tokens["cache_read_tokens"]
        read = self._tokens["input_tokens"] + self._tokens["cache_write_tokens"] + cached
        if read or self._tokens["output_tokens"]:
            of_cache = f" ({cached:,} from cache)" if cached else ""
            said.append(f"{read:,} tokens in{of_cache}, {self._tokens['output_tokens']:,} out")
        if self._cost:
            said.append(f"{'' if self._is_cost_whole else 'at least '}${self._cost:.4f}")
        took_s = _seconds(self._started_at, event.at)
        lasted = f" in {took_s:.1f} s" if took_s is not None else ""
        return f"{clean_line(event.data.get('outcome'))}{lasted}: {', '.join(said)}"


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _seconds(start: str | None, end: str) -> float | None:
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start or "")).total_seconds()
    except ValueError:
        return None
