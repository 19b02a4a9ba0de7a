"""One picture per benchmark: bars beside each other, the target as a line. Colours that everybody can tell apart."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.latency import PERCENTS
from bench.measure import Reading, Section
from bench.report import figure, target_of

# Okabe and Ito's palette.
OUTLIVE, BARE, ACCENT, GREY = "#0072B2", "#E69F00", "#D55E00", "#7F7F7F"

# Sections whose numbers of every unit are drawn; of the others, those of the first.
_ALL_UNITS = ("machines", "terminals", "loop")

mpl.rcParams.update(
    {
        "svg.hashsalt": "outlive",  # the same picture is the same file
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "figure.constrained_layout.use": True,
    }
)


def _colour(name: str) -> str:
    if name.startswith("step:"):
        return GREY
    return BARE if name.startswith(("bare", "unix socket", "sealed", "ttyd", "tmux", "coupled")) else OUTLIVE


def _bars(axes: Axes, readings: Sequence[Reading]) -> None:
    """Horizontal bars with the range of the rounds on them, and the median in words."""
    top = max(reading.spread[1] for reading in readings) or 1.0
    for at, reading in enumerate(readings):
        low, high = reading.spread
        axes.barh(at, reading.value, color=_colour(reading.name), height=0.62)
        if len(reading.rounds) > 1:
            axes.plot([low, high], [at, at], color="black", linewidth=1, marker="|", markersize=6)
        axes.text(high + top * 0.015, at, figure(reading.value), va="center", fontsize=8)
    axes.set_yticks(range(len(readings)), [reading.name for reading in readings])
    axes.invert_yaxis()
    axes.set_xlim(0, top * 1.14)
    axes.set_xlabel(readings[0].unit)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)


def _ratios(axes: Axes, section: Section) -> None:
    judged = [ratio for ratio in section.ratios if ratio.target is not None]
    top = max(max(*ratio.rounds, ratio.target or 0.0) for ratio in judged) or 1.0
    for at, ratio in enumerate(judged):
        assert ratio.target is not None
        axes.scatter(ratio.rounds, [at] * len(ratio.rounds), color=GREY, s=9, alpha=0.6, linewidths=0)
        axes.scatter([ratio.value], [at], color=OUTLIVE, s=46, zorder=3)
        axes.plot([ratio.target] * 2, [at - 0.34, at + 0.34], color=ACCENT, linewidth=2)
        axes.text(ratio.target, at - 0.38, target_of(ratio), color=ACCENT, fontsize=8, ha="center", va="bottom")
    axes.set_yticks(range(len(judged)), [ratio.name.replace(" / ", "\n/ ") for ratio in judged])
    axes.set_ylim(len(judged) - 0.4, -0.8)
    axes.set_xlim(0, top * 1.1)
    axes.set_xlabel("ratio: large dot the median, small dots the rounds")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)


def _draw_compared(section: Section, path: Path) -> None:
    """The readings of each unit that is shown, one below the other, and the judged ratios at the bottom."""
    units = list(dict.fromkeys(reading.unit for reading in section.readings))
    if not section.name.startswith(_ALL_UNITS):
        units = units[:1]
    groups = [[reading for reading in section.readings if reading.unit == unit] for unit in units]
    has_targets = any(ratio.target is not None for ratio in section.ratios)
    heights = [0.42 * len(readings) + 0.5 for readings in groups]
    if has_targets:
        heights.append(0.55 * sum(ratio.target is not None for ratio in section.ratios) + 0.6)
    drawn, axes = plt.subplots(
        len(heights), 1, figsize=(8, sum(heights) + 0.8), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    drawn.suptitle(section.title, fontweight="bold")
    for at, readings in enumerate(groups):
        _bars(axes[at][0], readings)
    if has_targets:
        _ratios(axes[-1][0], section)
    _save(drawn, path)


def _draw_latency(section: Section, path: Path) -> None:
    """p50, p95 and p99 of each way, on a scale that shows a hop and a stream together."""
    names = list(dict.fromkeys(reading.name.rpartition(",")[0] for reading in section.readings))
    drawn, axes = plt.subplots(figsize=(8, 0.5 * len(names) + 1.4))
    for at, name in enumerate(names):
        values = [section.reading(f"{name}, p{percent}").value for percent in PERCENTS]
        axes.plot([values[0], values[-1]], [at, at], color=_colour(name), linewidth=2)
        for value, marker in zip(values, ("o", "s", "^"), strict=True):
            axes.plot(value, at, marker=marker, color=_colour(name), markersize=6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("ms (circle p50, square p95, triangle p99)")
    axes.grid(axis="x", which="both", color="#DDDDDD", linewidth=0.6)
    drawn.suptitle(section.title, fontweight="bold")
    _save(drawn, path)


def _save(drawn: Figure, path: Path) -> None:
    drawn.savefig(path, metadata={"Date": None})
    plt.close(drawn)


def draw(folder: Path, sections: Sequence[Section]) -> list[str]:
    """A file for each section that has more than one number to show; returns their names."""
    names = []
    for section in sections:
        if section.skipped or len(section.readings) < 2 or section.name == "idle":
            continue
        name = f"{section.name}.svg"
        (_draw_latency if section.name == "latency" else _draw_compared)(section, folder / name)
        names.append(name)
    return names
