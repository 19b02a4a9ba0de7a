"""Rounds, readings and ratios: what a benchmark measures and how two contenders are compared. No I/O of its own."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from statistics import median
from typing import Literal, NamedTuple

Say = Callable[[str], None]
"""How a benchmark tells what it is doing just now."""

Bound = Literal["at least", "at most"]
Verdict = Literal["met", "missed", "unclear"]


@dataclass(frozen=True)
class Reading:
    """One quantity, once per round."""

    name: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.rounds), max(self.rounds)


@dataclass(frozen=True)
class Ratio:
    """Two readings of the same rounds, side by side. Without a bound it is shown and not judged."""

    name: str
    rounds: tuple[float, ...]
    bound: Bound | None = None
    target: float | None = None

    @property
    def value(self) -> float:
        return median(self.rounds)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true median lies, 19 times of 20; everything the rounds gave where they are too few to say."""
        return median_interval(self.rounds)

    @property
    def verdict(self) -> Verdict | None:
        """`unclear`: the rounds lie on both sides of the target so that their median decides nothing."""
        if self.target is None:
            return None
        low, high = self.interval
        if low < self.target < high:
            return "unclear"
        is_met = self.value >= self.target if self.bound == "at least" else self.value <= self.target
        return "met" if is_met else "missed"


@dataclass
class Section:
    """What one benchmark found."""

    name: str
    title: str
    what: str
    readings: list[Reading] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None

    def reading(self, name: str) -> Reading:
        return next(reading for reading in self.readings if reading.name == name)

    def add(self, name: str, unit: str, rounds: Sequence[float]) -> Reading:
        reading = Reading(name, unit, tuple(rounds))
        self.readings.append(reading)
        return reading

    def compare(
        self, left: str, right: str, bound: Bound | None = None, target: float | None = None, *, name: str | None = None
    ) -> Ratio:
        """`left` in units of `right`, round by round: what shook one round shook both sides of it."""
        pairs = zip(self.reading(left).rounds, self.reading(right).rounds, strict=True)
        ratio = Ratio(name or f"{left} / {right}", tuple(a / b for a, b in pairs), bound, target)
        self.ratios.append(ratio)
        return ratio

    def compare_fast(self, left: str, right: str, bound: Bound, target: float) -> None:
        """The same where the machine was at its fastest: the 90th percentiles of both rates.

        A slow disk makes everybody alike. This is what is left when it does not, so it is judged too.
        """
        fast = [percentile(self.reading(name).rounds, 90) for name in (left, right)]
        self.ratios.append(Ratio(f"{left} / {right}, fastest rounds", (fast[0] / fast[1],), bound, target))


_TOLD_ROUNDS = 25  # of more rounds than this only some are told of


class Contender(NamedTuple):
    name: str
    unit: str
    run: Callable[[], Awaitable[float]]


async def take_turns(contenders: Sequence[Contender], rounds: int, say: Say) -> list[Reading]:
    """Run all contenders once per round. One round before the first does not count: it warms up.

    Each round begins with another contender: who always ran behind the same one would always find the disk and the
    processor as that one left them.
    """
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            if rounds <= _TOLD_ROUNDS or number % (rounds // _TOLD_ROUNDS) == 0:
                say(f"round {number} of {rounds}: {contender.name}" if number else f"warming up: {contender.name}")
            value = await contender.run()
            if number:
                taken[contender.name].append(value)
    return [Reading(contender.name, contender.unit, tuple(taken[contender.name])) for contender in contenders]


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The narrowest pair of ranks, as far from both ends, between which the median lies with this confidence.

    It asks nothing of how the values are spread: each is above the true median with chance one half.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside = 0.0
    rank = 0
    while rank < (count - 1) // 2:
        outside += 2 * comb(count, rank) / 2**count
        if outside > 1 - confidence:
            break
        rank += 1
    rank = max(0, rank - 1)
    return ordered[rank], ordered[count - 1 - rank]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered)) - 1))]
