"""Two turns side by side, as text. Pure: from what the API says of a comparison to lines of a given width."""

import textwrap
from collections.abc import Mapping
from typing import Any

from outlive.cli.clean import clean, clean_line, short

Json = Mapping[str, Any]

_LABEL = 10
_BETWEEN = " │ "
CELL_LINES = 8  # of one step; `outlive show` has them whole
_NARROW = 24  # a column is never less


def compared_text(found: Json, width: int) -> str:
    """Rows that differ begin with ≠. What stands on one side only has nothing beside it."""
    column = max(_NARROW, (width - _LABEL - len(_BETWEEN)) // 2)
    left, right = found["left"], found["right"]
    lines = _row("", _title(left), _title(right), column)
    lines.append("─" * (_LABEL + 2 * column + len(_BETWEEN)))
    for row in found["rows"]:
        kind = (row["left"] or row["right"])["kind"]
        mark = " " if row["same"] else "≠"
        lines += _row(f"{mark} {kind}", _step(row["left"]), _step(row["right"]), column)
    lines.append("─" * (_LABEL + 2 * column + len(_BETWEEN)))
    for label, say in (("end", _end), ("steps", _steps), ("tokens", _tokens), ("cost", _cost), ("time", _time)):
        lines += _row(f"  {label}", say(left), say(right), column)
    if (parted := found.get("parted")) is not None:
        lines.append(_parted(parted))
    return "\n".join(line.rstrip() for line in lines)


def _row(label: str, left: str, right: str, column: int) -> list[str]:
    cells = [_wrapped(text, column) for text in (left, right)]
    height = max(len(cell) for cell in cells)
    padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    return [
        f"{label if n == 0 else '':<{_LABEL}}{a:<{column}}{_BETWEEN}{b}"
        for n, (a, b) in enumerate(zip(*padded, strict=True))
    ]


def _wrapped(text: str, column: int) -> list[str]:
    lines = [
        piece
        for line in clean(text).split("\n")
        for piece in (textwrap.wrap(line.expandtabs(4), column, drop_whitespace=False) or [""])
    ]
    return lines if len(lines) <= CELL_LINES else [*lines[: CELL_LINES - 1], f"… {len(lines) - CELL_LINES + 1} lines …"]


def _title(side: Json) -> str:
    model = clean_line(side.get("model") or "?")
    return f"{model}\n{clean_line(side['conversation'])}"


def _step(step: Json | None) -> str:
    if step is None:
        return ""
    if step["kind"] == "answer":
        return str(step["text"]).strip() or "(only calls)"
    called = f"{clean_line(step['name'])} {short(step['arguments'])}"
    return f"{called}\n→ {_came_of(step)}"


def _came_of(step: Json) -> str:
    if step["outcome"] is None:
        return "not run"
    code = f" (exit code {step['exit_code']})" if step.get("exit_code") else ""
    first = next((line for line in str(step["text"]).splitlines() if line.strip()), "")
    return f"{clean_line(step['outcome'])}{code}{': ' if first else ''}{first}"


def _end(side: Json) -> str:
    outcome = clean_line(side.get("outcome") or "goes on")
    return f"{outcome}: {clean_line(side['reason'])}" if side.get("reason") else outcome


def _steps(side: Json) -> str:
    return f"{_counted(side['answers'], 'answer')}, {_counted(side['calls'], 'call')}"


def _tokens(side: Json) -> str:
    usage: Mapping[str, int] = side["usage"]
    read = usage["input_tokens"] + usage["cache_read_tokens"] + usage["cache_write_tokens"]
    return f"{read:,} in, {usage['output_tokens']:,} out"


def _cost(side: Json) -> str:
    return "not known" if side["cost"] is None else f"${side['cost']:.4f}"


def _time(side: Json) -> str:
    return "-" if side["seconds"] is None else f"{side['seconds']:.1f} s"


def _parted(parted: Json) -> str:
    done = "really done from there on" if parted.get("execute") else "nothing was done from there on"
    return (
        f"They part at {clean_line(parted['name'])}, after {_counted(parted['answered'], 'call')} that matched: {done}."
    )


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
