"""A race as text: contestants side by side, and one line for each while they are at work. Pure.

What models wrote is made harmless here before it reaches a terminal.
"""

import textwrap
from collections.abc import Mapping, Sequence

from outlive.cli.clean import clean, clean_line
from outlive.client.races import ContestantFacts, RaceFacts

ANSWER_LINES = 20  # of an answer that are shown; `outlive show` has it whole
_LABEL = 9
_GAP = "  "
_LEAST = 16  # columns of one contestant


def name_of(contestant: ContestantFacts) -> str:
    """Who it is: its agent, its model, or both."""
    who = [clean_line(each) for each in (contestant.agent, contestant.model) if each]
    return " ".join(who) or "as the conversation"


def progress_line(contestant: ContestantFacts) -> str:
    state = contestant.outcome or contestant.state
    steps = f"{contestant.steps} step{'' if contestant.steps == 1 else 's'}"
    return f"{contestant.number} {name_of(contestant)}: {clean_line(state).replace('_', ' ')}, {steps}"


def side_by_side(race: RaceFacts, changes: Mapping[int, str], width: int) -> str:
    """One column for each contestant, as wide as fits."""
    count = len(race.contestants)
    column = max(_LEAST, (width - _LABEL - len(_GAP) * count) // count)
    rows: list[tuple[str, list[str]]] = [
        ("", [f"{each.number} {name_of(each)}" for each in race.contestants]),
        ("", ["-" * column] * count),
        ("answer", [_answer(each) for each in race.contestants]),
        ("outcome", [_outcome(each) for each in race.contestants]),
        ("steps", [str(each.steps) for each in race.contestants]),
        ("tokens", [f"{each.tokens:,}" for each in race.contestants]),
        ("cost", [_cost(each) for each in race.contestants]),
    ]
    if changes:
        rows.append(("changes", [changes.get(each.number, "") for each in race.contestants]))
    return "\n".join(line for label, cells in rows for line in _row(label, cells, column))


def _row(label: str, cells: Sequence[str], column: int) -> list[str]:
    wrapped = [_wrap(cell, column) for cell in cells]
    lines = []
    for number in range(max(len(each) for each in wrapped)):
        shown = [each[number] if number < len(each) else "" for each in wrapped]
        first = label if number == 0 else ""
        lines.append(_GAP.join([f"{first:<{_LABEL}}", *(f"{each:<{column}}" for each in shown)]).rstrip())
    return lines


def _wrap(text: str, column: int) -> list[str]:
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, column) or [""]]
    return lines if len(lines) <= ANSWER_LINES else [*lines[: ANSWER_LINES - 1], "…"]


def _answer(contestant: ContestantFacts) -> str:
    return clean(contestant.answer).strip() or "(no answer)"


def _outcome(contestant: ContestantFacts) -> str:
    said = clean_line(contestant.outcome or contestant.state).replace("_", " ")
    if contestant.state in ("chosen", "let_go") and contestant.outcome:
        said = f"{said}, {contestant.state.replace('_', ' ')}"
    return f"{said}: {clean_line(contestant.reason)}" if contestant.reason else said


def _cost(contestant: ContestantFacts) -> str:
    return "unknown" if contestant.cost is None else f"${contestant.cost:.4f}"
