"""What was found, for people: tables on the screen and in Markdown, and all of it in JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.facts import Facts
from bench.measure import Ratio, Reading, Section

_HOW = (
    "Medians of the rounds; a ratio is the median of the ratios of neighbouring rounds. `unclear`: the interval in "
    "which the true median lies (19 times of 20) holds the target, so this run does not decide."
)
RESULTS = Path(__file__).parent / "results"


def figure(value: float) -> str:
    """Three digits that matter."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def target_of(ratio: Ratio) -> str:
    return "" if ratio.target is None else f"{ratio.bound} {ratio.target:g}"


def spread_of(rounds: Sequence[float]) -> str:
    return "" if len(rounds) < 2 else f"{figure(min(rounds))} to {figure(max(rounds))}"


def show(console: Console, section: Section) -> None:
    """One section on the screen."""
    if section.skipped:
        console.print(f"  skipped: {section.skipped}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column, justify in (("", "left"), ("median", "right"), ("rounds", "right"), ("target", "left"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for reading in section.readings:
        table.add_row(reading.name, f"{figure(reading.value)} {reading.unit}", spread_of(reading.rounds), "", "")
    for ratio in section.ratios:
        colour = {None: "", "met": "green", "missed": "bold red", "unclear": "yellow"}[ratio.verdict]
        row = (ratio.name, f"{figure(ratio.value)} x", spread_of(ratio.rounds), target_of(ratio), ratio.verdict or "")
        table.add_row(*row, style=colour)
    console.print(table)
    for note in section.notes:
        console.print(f"  {note}")


def _markdown_rows(section: Section) -> list[str]:
    lines = ["| | median | rounds | target | |", "|---|---:|---:|---|---|"]
    lines += [_row(r.name, f"{figure(r.value)} {r.unit}", spread_of(r.rounds), "", "") for r in section.readings]
    lines += [
        _row(f"**{r.name}**", f"**{figure(r.value)} x**", spread_of(r.rounds), target_of(r), r.verdict or "")
        for r in section.ratios
    ]
    return lines


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def to_markdown(facts: Facts, sections: Sequence[Section], plots: Sequence[str]) -> str:
    lines = ["# Results of `make bench`", "", facts.line, ""]
    lines += [_HOW, ""]
    judged = [(section, ratio) for section in sections for ratio in section.ratios if ratio.target is not None]
    if judged:
        lines += ["## In short", "", "| | ratio | interval | target | |", "|---|---:|---:|---|---|"]
        lines += [
            _row(
                f"{section.title}: {ratio.name}",
                f"{figure(ratio.value)} x",
                spread_of(ratio.interval) if len(ratio.rounds) > 1 else "",
                target_of(ratio),
                ratio.verdict or "",
            )
            for section, ratio in judged
        ]
        lines.append("")
    for section in sections:
        lines += [f"## {section.title}", "", section.what, ""]
        lines += [f"Skipped: {section.skipped}"] if section.skipped else _markdown_rows(section)
        lines += [f"\n{note}" for note in section.notes]
        lines += ["", *(f"![{section.title}]({plot})\n" for plot in plots if plot == f"{section.name}.svg")]
    return "\n".join(lines).rstrip() + "\n"


def _plain(of: Reading | Ratio) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": of.name, "median": of.value, "rounds": list(of.rounds)}
    if isinstance(of, Reading):
        plain["unit"] = of.unit
    elif of.target is not None:
        plain |= {"bound": of.bound, "target": of.target, "interval": list(of.interval), "verdict": of.verdict}
    return plain


def to_json(facts: Facts, sections: Sequence[Section]) -> str:
    tree = {
        "facts": facts.plain(),
        "sections": [
            {
                "name": section.name,
                "title": section.title,
                "what": section.what,
                "skipped": section.skipped,
                "readings": [_plain(reading) for reading in section.readings],
                "ratios": [_plain(ratio) for ratio in section.ratios],
                "notes": section.notes,
            }
            for section in sections
        ],
    }
    return json.dumps(tree, indent=1) + "\n"


def read_sections(folder: Path) -> list[Section]:
    """What earlier runs have written there."""
    try:
        tree = json.loads((folder / "results.json").read_text())
    except FileNotFoundError:
        return []
    return [
        Section(
            name=found["name"],
            title=found["title"],
            what=found.get("what", ""),
            readings=[Reading(one["name"], one["unit"], tuple(one["rounds"])) for one in found["readings"]],
            ratios=[
                Ratio(one["name"], tuple(one["rounds"]), one.get("bound"), one.get("target")) for one in found["ratios"]
            ],
            notes=found["notes"],
            skipped=found["skipped"],
        )
        for found in tree["sections"]
    ]
