"""Two turns side by side, as people compare them: steps, where they differ, what they cost. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal

from outlive.conversation.events import Event
from outlive.loop.replays.recording import same_of

TEXT_LIMIT = 4_000  # characters of an answer or an output that are shown
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True)
class Step:
    """An answer, or a call with what came of it. `outcome` of a call: None if it was never run."""

    kind: Literal["answer", "tool"]
    text: str  # of the answer; of a call the output
    name: str | None = None
    arguments: dict[str, Any] | None = None
    outcome: str | None = None
    exit_code: int | None = None
    same: tuple[str, ...] = ()  # what a step has in common with its like


@dataclass(slots=True)
class Side:
    """One of the two turns."""

    conversation: str
    turn: str
    agent: str | None = None
    version: int | None = None
    model: str | None = None
    outcome: str | None = None
    reason: str | None = None
    answers: int = 0
    calls: int = 0
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    cost: float | None = 0.0
    seconds: float | None = None
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    left: Step | None
    right: Step | None

    @property
    def is_same(self) -> bool:
        left, right = self.left, self.right
        if left is None or right is None or left.same != right.same:
            return False
        return left.kind == "tool" or left.text == right.text


@dataclass(frozen=True, slots=True)
class Comparison:
    left: Side
    right: Side
    rows: tuple[Row, ...]
    parted: dict[str, Any] | None  # where a replay left its recording

    def to_json(self) -> dict[str, Any]:
        return {
            "left": _side_json(self.left),
            "right": _side_json(self.right),
            "rows": [
                {"same": row.is_same, "left": _step_json(row.left), "right": _step_json(row.right)} for row in self.rows
            ],
            "parted": self.parted,
        }


def _side_json(side: Side) -> dict[str, Any]:
    return {name: value for name, value in asdict(side).items() if name != "steps"}


def _step_json(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {name: value for name, value in asdict(step).items() if name != "same"}


def compare(left: Side, right: Side, parted: dict[str, Any] | None = None) -> Comparison:
    """Like steps stand beside each other: the same calls, and answers in their order."""
    matcher = SequenceMatcher(None, [step.same for step in left.steps], [step.same for step in right.steps], False)
    rows: list[Row] = []
    for _, a, b, c, d in matcher.get_opcodes():
        lefts, rights = left.steps[a:b], right.steps[c:d]
        rows += [Row(*pair) for pair in zip_longest(lefts, rights)]
    return Comparison(left, right, tuple(rows), parted)


def side_of(conversation: str, turn: str, events: Sequence[Event]) -> Side:
    """`events` hold all of the turn; those of others are passed over."""
    side = Side(conversation, turn)
    began: str | None = None
    results: dict[str, dict[str, Any]] = {}
    calls: list[dict[str, Any]] = []
    for event in events:
        if event.turn != turn:
            continue
        data = event.data
        match event.type:
            case "turn.started":
                side.agent, side.version, side.model = data["agent"], data["version"], data["model"]
                began = event.at
            case "model.responded":
                side.steps += _tools(calls, results)
                side.answers += 1
                _add(side, data["usage"])
                side.steps.append(Step("answer", _short(data["text"]), same=("answer",)))
                calls, results = data["tool_calls"], {}
            case "compaction.finished":
                _add(side, data["usage"])
            case "tool.finished":
                results[data["call"]] = data
            case "turn.finished":
                side.outcome, side.reason = data["outcome"], data["reason"]
                side.seconds = _between(began, event.at)
            case _:
                pass
    side.steps += _tools(calls, results)
    side.calls = sum(step.kind == "tool" for step in side.steps)
    return side


def _tools(calls: Sequence[dict[str, Any]], results: dict[str, dict[str, Any]]) -> list[Step]:
    steps = []
    for call in calls:
        result = results.get(call["id"], {})
        steps.append(
            Step(
                "tool",
                _short(result.get("output", "")),
                call["name"],
                call["arguments"],
                result.get("outcome"),
                result.get("exit_code"),
                ("tool", *same_of(call)),
            )
        )
    return steps


def _add(side: Side, usage: dict[str, Any]) -> None:
    for name in _TOKENS:
        side.usage[name] += int(usage.get(name) or 0)
    cost = usage.get("cost_usd")
    side.cost = None if cost is None or side.cost is None else round(side.cost + float(cost), 8)  # unknown is not free


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"


def _between(began: str | None, ended: str) -> float | None:
    if began is None:
        return None
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 3)
