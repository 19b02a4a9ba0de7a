"""What the pretend provider answers: a pure function of what it is asked.

A person's message may hold a script, in double brackets. It says what the next answers are:

    [[say TEXT]]                 text
    [[think TEXT]]               thinking, in a block of its own
    [[tool NAME {JSON}]]         a tool call; it ends the answer
    [[also tool NAME {JSON}]]    one more call in the same answer, to run beside it
    [[repeat N tool NAME {JSON}]] N answers with one call each; {{n}} in the JSON counts from 1
    [[badtool NAME TEXT]]        a tool call whose arguments are TEXT as it stands
    [[big N]]                    N characters of text, word by word
    [[lump N]]                   N characters of text that come in one piece
    [[quote N]]                  the first N characters of the newest tool results
    [[stop REASON]]              how the answer ends: max_tokens, refusal
    [[slow S]]  [[pace S]]       seconds before the first byte of the answer; between two pieces
    [[pings S]]                  seconds of nothing but signs of life before the first piece of the answer

    [[summary TEXT]]             what it answers if asked for a summary of a text that holds this; the last counts

    [[as MODEL]]                 what follows, up to the next of these, is the script for MODEL alone; what stands
                                 before the first is for all others

and what goes wrong with the answer it stands in (N times, once if not said; `always`), before it is given:

    [[error STATUS]]             an HTTP error; more words: retry-after=V, retry-after-ms=V, type=T, code=C, message=M
    [[sse-error TYPE]]           an error event in the stream, behind after=N pieces
    [[cut]] [[stall]] [[garbage]] [[end]]  the connection is cut, falls silent, brings nonsense, ends too early
    [[html]]                     a page instead of a stream

An answer is everything up to and including its tool call; the text behind the last call is the last answer. So
`[[say I look.]] [[tool shell {"command": "ls"}]] [[say Done.]]` is two answers. The number of an answer is in the ids
of its calls, so the provider needs no memory to know where a conversation stands. Only "N times" needs a count.
A message without a script is echoed.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outlive.loop.compacting import OPENING

ALWAYS = 1_000_000
_ID = re.compile(r"_s(\d+)_\d+$")
_TROUBLES = ("error", "sse-error", "cut", "stall", "garbage", "end", "html")
_WORDS = (
    "say",
    "think",
    "tool",
    "also",
    "repeat",
    "badtool",
    "big",
    "lump",
    "quote",
    "stop",
    "slow",
    "pace",
    *_TROUBLES,
)
_WORD = re.compile(rf"\[\[\s*({'|'.join(_WORDS)})(?=[\s\]])\s*")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in a conversation as a provider sees it. Notes of the runtime are not among them."""

    role: Literal["user", "assistant", "result"]
    text: str
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    kind: str
    times: int = 1
    status: int = 500
    after: int = 0
    type: str = ""
    code: str = ""
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    match: str = ""  # armed from outside: only for conversations whose newest message holds this


@dataclass(frozen=True, slots=True)
class PlannedCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Planned:
    """One answer."""

    number: int = 0
    thinking: str = ""
    text: str = ""
    calls: tuple[PlannedCall, ...] = ()
    stop: str = ""
    slow_s: float = 0.0
    pace_s: float = 0.0
    pings_s: float = 0.0
    quote: int = 0
    troubles: tuple[Trouble, ...] = ()


@dataclass(slots=True)
class _Reading:
    """A script that is being read."""

    answers: list[Planned] = field(default_factory=list)
    now: Planned = field(default_factory=Planned)

    def end_answer(self) -> None:
        self.answers.append(self.now)
        self.now = Planned()

    def add_call(self, name: str, arguments: str, *, beside: bool = False) -> None:
        if beside and self.answers:
            last = self.answers.pop()
            self.answers.append(replace(last, calls=(*last.calls, PlannedCall("", name, arguments))))
            return
        self.now = replace(self.now, calls=(PlannedCall("", name, arguments),))
        self.end_answer()


def has_script(text: str) -> bool:
    return _WORD.search(text) is not None


_SUMMARY = re.compile(r"\[\[summary ([^\]]*)\]\]")
_AS = re.compile(r"\[\[as ([^\]]+)\]\]")


def script_for(model: str, text: str) -> str:
    """The part of a message that is the script for `model`."""
    before, *rest = _AS.split(text)
    return next((part for name, part in zip(rest[::2], rest[1::2], strict=True) if name.strip() == model), before)


def read_script(text: str) -> list[Planned]:
    """The answers that a message asks for, in order. What cannot be read is left out."""
    reading = _Reading()
    place = 0
    while match := _WORD.search(text, place):
        place = _read_directive(reading, match[1], text, match.end())
    if reading.now != Planned() or not reading.answers:
        reading.end_answer()
    return reading.answers


def _read_directive(reading: _Reading, word: str, text: str, start: int) -> int:
    """Read one directive from behind its first word; where it ends."""
    if word in ("tool", "also", "repeat"):
        return _read_tool(reading, word, text, start)
    end = text.find("]]", start)
    end = len(text) if end < 0 else end
    rest, now = text[start:end].strip(), reading.now
    match word:
        case "say":
            now = replace(now, text=now.text + rest)
        case "think":
            now = replace(now, thinking=now.thinking + rest)
        case "big":
            now = replace(now, text=now.text + filler(int(rest)))
        case "lump":
            now = replace(now, text=now.text + filler(int(rest)).replace(" ", "_"))
        case "quote":
            now = replace(now, quote=int(rest or 200))
        case "stop":
            now = replace(now, stop=rest)
        case "slow":
            now = replace(now, slow_s=float(rest))
        case "pace":
            now = replace(now, pace_s=float(rest))
        case "pings":
            now = replace(now, pings_s=float(rest))
        case "badtool":
            name, _, arguments = rest.partition(" ")
            reading.add_call(name, arguments)
            return end + 2
        case _ if word in _TROUBLES:
            now = replace(now, troubles=(*now.troubles, _read_trouble(word, rest)))
    reading.now = now
    return end + 2


_TOOL = re.compile(r"(?:(\d+)\s+)?(?:tool\s+)?([\w-]+)\s*")


def _read_tool(reading: _Reading, word: str, text: str, start: int) -> int:
    match = _TOOL.match(text, start)
    if match is None:
        return start
    try:
        _, end = json.JSONDecoder().raw_decode(text, match.end())
        arguments = text[match.end() : end]
    except ValueError:
        end, arguments = match.end(), "{}"
    for number in range(1, int(match[1] or 1) + 1):
        reading.add_call(match[2], arguments.replace("{{n}}", str(number)), beside=word == "also")
    behind = text.find("]]", end)
    return len(text) if behind < 0 else behind + 2


_OPTION = re.compile(r"([a-z-]+)=(\"[^\"]*\"|\S+)")


def _read_trouble(kind: str, rest: str) -> Trouble:
    options = {name: value.strip('"') for name, value in _OPTION.findall(rest)}
    words = _OPTION.sub("", rest).split()
    times = next((int(w[1:]) for w in words if re.fullmatch(r"x\d+", w)), ALWAYS if "always" in words else 1)
    status = next((int(w) for w in words if w.isdigit()), 500)
    named = next((w for w in words if not w.isdigit() and w != "always" and not re.fullmatch(r"x\d+", w)), "")
    headers = tuple((name, options[name]) for name in ("retry-after", "retry-after-ms") if name in options)
    return Trouble(
        kind,
        times,
        status,
        int(options.get("after", 0)),
        options.get("type", named),
        options.get("code", ""),
        options.get("message", ""),
        headers,
    )


def filler(length: int) -> str:
    words = "the quick brown fox jumps over the lazy dog and "
    return (words * (length // len(words) + 1))[:length]


def plan_answer(items: Sequence[Item], prefix: str, model: str = "") -> Planned:
    """The answer to a conversation. The same conversation gets the same answer, whenever and how often it asks."""
    texts = [item.text for item in items if item.role == "user"]
    newest = texts[-1] if texts else ""
    place = max((n for n, item in enumerate(items) if item.role == "user" and has_script(item.text)), default=None)
    planned = Planned(text=f"You said: {newest[:200]}")
    if newest.startswith(OPENING):  # a compaction: scripts in what is summarised are not for this answer
        said = _SUMMARY.findall(newest)
        return Planned(text=said[-1] if said else f"A summary of {len(newest)} characters.", pace_s=0.02)
    if place is not None and (number := _next_answer(items[place + 1 :])) is not None:
        answers = read_script(script_for(model, items[place].text))
        planned = answers[number] if number < len(answers) else Planned(text="Done.")
        planned = replace(planned, number=number)
    if planned.quote:
        planned = replace(planned, text=planned.text + _newest_results(items)[: planned.quote])
    mark = hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:12]
    calls = tuple(replace(call, id=f"{prefix}_{mark}_s{planned.number}_{n}") for n, call in enumerate(planned.calls, 1))
    return replace(planned, calls=calls)


def _next_answer(behind: Sequence[Item]) -> int | None:
    """Which answer of a script comes next, by what stands behind it; None: the script is over."""
    answers = [item for item in behind if item.role == "assistant"]
    if not answers:
        return 0
    numbers = [int(match[1]) for call in answers[-1].calls if (match := _ID.search(call))]
    return max(numbers) + 1 if numbers else None


def _newest_results(items: Sequence[Item]) -> str:
    texts: list[str] = []
    for item in reversed(items):
        if item.role == "assistant":
            break
        if item.role == "result":
            texts.append(item.text)
    return "\n".join(reversed(texts))


def trouble_of(troubles: Sequence[Trouble], nth: int) -> Trouble | None:
    """What goes wrong with the `nth` call (from 1) of one step."""
    for trouble in troubles:
        if nth <= trouble.times:
            return trouble
        nth -= trouble.times
    return None


def in_pieces(text: str) -> Iterator[str]:
    """Words, as a model would send them; long ones of a long text together."""
    size = max(1, len(text) // 2000)
    words = re.findall(r"\S+\s*|\s+", text)
    for start in range(0, len(words), size):
        yield "".join(words[start : start + size])
