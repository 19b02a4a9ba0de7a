"""What is left out of a conversation that is longer than a model can read. Pure.

Rule 1: first the oldest outputs of tools are cut to their beginning and end, then the oldest exchanges are left out;
        an answer and its results only together, and what a person said only after all that was answered to it. What a
        person said last always stays, and so does what is pinned, up to half of all there is room for.
Rule 2: a cut is deep (down to `_AFTER_A_CUT` of the budget) and is made where the conversation first grew too long, as
        if it had been read from its beginning. So the same beginning is told the same way at many steps after each
        other, and a provider's prompt cache finds it again.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from outlive.loop.models.messages import AssistantMessage, Message, Note, ToolResultMessage, ToolSpec, UserMessage
from outlive.loop.spoken import Answered, Pinned, Unit, is_said

RESULT_BYTES = 32_768  # of one tool's output, unless a setting says otherwise
IMAGE_TOKENS = 1_600
SMALLEST_BUDGET = 1_000  # tokens: below that there is nothing to choose
_BYTES_PER_TOKEN = 4
_MESSAGE_TOKENS = 8  # what a provider puts around each message, about
_CUT_OUTPUT = 800  # bytes that stay of an old output
_AFTER_A_CUT = 0.7
_NOTES_TOKENS = 160  # kept free for the notes that say what was left out


def estimate_tokens(text: str) -> int:
    """About as many tokens as a model makes of `text`; scripts that take more bytes take more tokens."""
    return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def estimate_message(message: Message) -> int:
    match message:
        case AssistantMessage(text, calls, blocks):
            called = sum(_MESSAGE_TOKENS + estimate_tokens(call.name + json.dumps(call.arguments)) for call in calls)
            kept = sum(estimate_tokens(json.dumps(block)) for block in blocks)
            return _MESSAGE_TOKENS + estimate_tokens(text) + called + kept
        case ToolResultMessage(output=text, images=images) | UserMessage(text, images):
            return _MESSAGE_TOKENS + estimate_tokens(text) + IMAGE_TOKENS * len(images)
        case Note(text):
            return _MESSAGE_TOKENS + estimate_tokens(text)


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """What the model is told of its tools."""
    return sum(estimate_tokens(tool.name + tool.description + json.dumps(tool.parameters)) for tool in tools)


def shorten(text: str, limit: int) -> str:
    """`text`, or its beginning and end with a word between them, in at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    word = f"\n[… {len(data) - limit} bytes or more left out here …]\n"
    room = max(0, limit - len(word.encode()))
    tail = room // 3
    return data[: room - tail].decode(errors="ignore") + word + data[len(data) - tail :].decode(errors="ignore")


def weigh(units: Iterable[Unit], budget: int, result_bytes: int) -> int:
    """About how many tokens they are, if none of them is left out of a `budget` that has room for them."""
    fitter = _Fitter(max(budget, SMALLEST_BUDGET), result_bytes)
    return sum(fitter.weigh(unit) for unit in units)


def fit(units: Sequence[Unit], budget: int, result_bytes: int) -> list[Message]:
    """The messages of `units` in at most `budget` tokens, as estimated; a note stands where something was left out."""
    fitter = _Fitter(max(budget, SMALLEST_BUDGET) - _NOTES_TOKENS, result_bytes)
    for unit in units:
        fitter.add(unit)
    return fitter.messages()


@dataclass(slots=True)
class _Kept:
    unit: Unit
    tokens: int
    is_cut: bool = False
    is_left_out: bool = False


class _Fitter:
    def __init__(self, budget: int, result_bytes: int) -> None:
        self._budget = budget
        self._result_bytes = min(result_bytes, budget * _BYTES_PER_TOKEN // 4)
        self._all: list[_Kept] = []
        self._live: list[_Kept] = []  # those that are not left out
        self._total = 0
        self._pinned = 0

    def weigh(self, unit: Unit) -> int:
        return _estimate(self._bounded(unit))

    def add(self, unit: Unit) -> None:
        bounded = self._bounded(unit)
        kept = _Kept(bounded, _estimate(bounded))
        if isinstance(bounded, Pinned):
            if self._pinned + kept.tokens <= self._budget // 2:
                self._pinned += kept.tokens
            else:
                said = self._bounded(bounded.said)  # as any other: the rest has to fit too
                kept = _Kept(said, _estimate(said))
        self._all.append(kept)
        self._live.append(kept)
        self._total += kept.tokens
        if self._total > self._budget:
            self._make_room()
            self._live = [kept for kept in self._live if not kept.is_left_out]

    def messages(self) -> list[Message]:
        messages: list[Message] = []
        gap = 0
        for kept in self._all:
            if kept.is_left_out:
                gap += 1
                continue
            if gap:
                messages.append(_gap_note(gap))
            gap = 0
            messages += _messages_of(kept.unit)
        return [*messages, _gap_note(gap)] if gap else messages

    def _bounded(self, unit: Unit) -> Unit:
        """No unit takes all there is: half of the budget for a text, a quarter each for pictures and for an output."""
        match unit:
            case UserMessage(text, images):
                kept = images[: self._budget // 4 // IMAGE_TOKENS]
                if len(kept) < len(images):
                    text += f"\n[{len(images) - len(kept)} more pictures do not fit here]"
                return UserMessage(shorten(text, self._budget * _BYTES_PER_TOKEN // 2), kept)
            case Note(text):
                return Note(shorten(text, self._budget * _BYTES_PER_TOKEN // 8))
            case Answered():
                return _with_outputs(unit, self._result_bytes)
            case Pinned(Note(text)):
                return Pinned(Note(shorten(text, self._budget * _BYTES_PER_TOKEN // 4)))
            case Pinned():
                return unit

    def _make_room(self) -> None:
        last_said = next((kept for kept in reversed(self._live) if is_said(kept.unit)), None)
        answers = [kept for kept in self._live if isinstance(kept.unit, Answered)]
        fixed = last_said.tokens if last_said else 0
        target = fixed + int((self._budget - fixed) * _AFTER_A_CUT)

        for kept in answers[:-1]:
            if self._total > target and not kept.is_cut:
                self._cut(kept, _CUT_OUTPUT)
        for kept in _in_order_of_leaving(self._live, last_said):
            if answers and kept is answers[-1]:
                break  # what the model did last, and what came after it
            if self._total > target:
                self._leave_out(kept)
        self._make_last_room(answers[-1] if answers else None, last_said)

    def _make_last_room(self, newest: _Kept | None, last_said: _Kept | None) -> None:
        """What is newest is too long by itself: less of each output, then none of it."""
        if self._total > self._budget and newest is not None and isinstance(newest.unit, Answered):
            room = (self._budget - self._total + newest.tokens) * _BYTES_PER_TOKEN // 2
            self._cut(newest, max(_CUT_OUTPUT // 4, room // max(1, len(newest.unit.results))))
        for kept in self._live:
            is_spare = kept is not last_said and not isinstance(kept.unit, Pinned)
            if self._total > self._budget and is_spare and not kept.is_left_out:
                self._leave_out(kept)

    def _cut(self, kept: _Kept, limit: int) -> None:
        assert isinstance(kept.unit, Answered)
        kept.is_cut = True
        kept.unit = _with_outputs(kept.unit, limit)
        tokens = _estimate(kept.unit)
        self._total += tokens - kept.tokens
        kept.tokens = tokens

    def _leave_out(self, kept: _Kept) -> None:
        kept.is_left_out = True
        self._total -= kept.tokens


def _in_order_of_leaving(live: Sequence[_Kept], last_said: _Kept | None) -> list[_Kept]:
    """Oldest first, but what a person said only after all that was answered to it, and the newest of that never, nor
    what is pinned."""
    order: list[_Kept] = []
    said: list[_Kept] = []  # that waits for the end of its exchange
    for kept in live:
        if is_said(kept.unit):
            order += said
            said = [] if kept is last_said or isinstance(kept.unit, Pinned) else [kept]
        elif not isinstance(kept.unit, Pinned):
            order.append(kept)
    return [*order, *said]


def _with_outputs(unit: Answered, limit: int) -> Answered:
    """The same with outputs of at most `limit` bytes."""
    return replace(unit, results=tuple(replace(each, output=shorten(each.output, limit)) for each in unit.results))


def _messages_of(unit: Unit) -> list[Message]:
    match unit:
        case Answered(answer, results):
            return [answer, *results]
        case Pinned(said):
            return [said]
        case _:
            return [unit]


def _estimate(unit: Unit) -> int:
    return sum(estimate_message(message) for message in _messages_of(unit))


def _gap_note(count: int) -> Note:
    return Note(
        f"{count} earlier parts of this conversation are left out here: it is longer than you can read at once."
    )
