"""What a crash campaign of machines came to, as a page. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from crash.machines.partition import Fate

_FATES = {
    "elsewhere": "came up on the other node",
    "lost": "had no checkpoint, and said that they are lost",
    "resting": "were to rest, and did",
    "deleted": "were deleted",
}
_CHECKS = {  # what was counted -> what it is that may not be
    "commands looked for": "commands that ran twice, ran unknown, or are said to be finished and left nothing",
    "answers compared": "answers about a command that differ from an earlier one",
    "machines looked at": "machines in a state that the API denies, whose generation fell, or whose pause was ended",
    "sandboxes counted": "machines with two sandboxes that live",
    "machines cut off": "machines that lived on a node that was cut off when they were given up or up elsewhere",
    "stale machines": "stale machines that ran anything when their node was back, or were not destroyed",
    "places looked at": "mounts, loop devices, processes, cgroups, folders left on the host, checkpoints in the store",
}


@dataclass(slots=True)
class Tally:
    seed: int
    rounds: int = 0
    took_s: float = 0.0
    verbs: Counter[str] = field(default_factory=Counter)
    accidents: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)  # by code
    outcomes: Counter[str] = field(default_factory=Counter)  # of commands
    checked: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)  # nodes
    fates: list[Fate] = field(default_factory=list)


def report_of(tally: Tally) -> str:
    """Of a campaign that came to its end: what it finds wrong ends it there."""
    return "\n".join(
        (
            "# Machines while everything is killed",
            "",
            f"`make crash ARGS=machines`, seed {tally.seed}: {tally.rounds} rounds in {tally.took_s:,.0f} s, each of "
            "one verb and one accident, on one stack with a second node beside it. Commands leave lines that are "
            "counted. A campaign that finds anything wrong ends there, and writes no page.",
            "",
            "| what may not be, and was not found | looked for |",
            "|---|---|",
            *(f"| {text} | {tally.checked[name]:,} times |" for name, text in _CHECKS.items()),
            "",
            "| what was | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _facts(tally).items()),
            "",
        )
    )


def _facts(tally: Tally) -> dict[str, str]:
    fates = Counter(fate.word for fate in tally.fates)
    still = [fate.still_s for fate in tally.fates if fate.still_s is not None]
    facts = {
        "verbs": _counts(tally.verbs),
        "accidents": _counts(tally.accidents),
        "verbs that were refused, and why": _counts(tally.refused),
        "commands that were over, and how": _counts(tally.outcomes),
        "nodes that were cut off for longer than their lease": _counts(tally.cut),
        "machines that gave signs of life on them": _counts({_FATES[word]: count for word, count in fates.items()}),
    }
    if still:
        facts["stood still before they came up elsewhere"] = f"{min(still):.1f} s to {max(still):.1f} s"
    return facts


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
