"""A batch while it runs: a bar with rate and time left on a terminal, a line now and then in a pipe. All on stderr."""

import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from outlive.base import OutliveError
from outlive.cli.clean import clean_line
from outlive.client import AsyncClient
from outlive.client.batches import BatchRun, Counts, Header, Item, Line, Options, Standing, open_record

if TYPE_CHECKING:
    from rich.progress import TaskID

PATIENCE_S = 2.0  # of one call: a stack that is away longer is waited for by the batch, and that is said
LINE_EVERY_S = 10.0
RATE_OVER_S = 60.0


class Pace:
    """How fast items end, by those of the last minute. Pure, but for the clock that it is handed."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, over: int, now: float) -> None:
        self._seen.append((now, over))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_OVER_S:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Items per second; None while nobody can tell."""
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last > first and last_at > first_at else None

    def text(self, left: int) -> str:
        rate = self.rate
        if rate is None:
            return ""
        return f"{rate:.1f}/s, {duration(left / rate)} left" if left else f"{rate:.1f}/s"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


class Lines:
    """For a pipe or a file."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._pace = Pace()
        self._said_at = time.monotonic()

    def told(self, standing: Standing) -> None:
        now = time.monotonic()
        over = standing.done + standing.failed
        self._pace.take(over, now)
        if not self._quiet and now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            self._say(f"{describe(standing)}  {self._pace.text(standing.items - over)}".rstrip())

    def away(self, error: OutliveError) -> None:
        self._say(f"… {clean_line(error.message)} Waiting for it.")

    def back(self) -> None:
        self._say("… the stack is back.")

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def describe(standing: Standing) -> str:
    over = standing.done + standing.failed
    parts = [f"{over:,} of {standing.items:,}"]
    parts += [f"{standing.failed:,} failed"] if standing.failed else []
    parts += [f"{standing.waiting:,} waiting"] if standing.waiting else []
    return ", ".join(parts)


class Bar:
    """For a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._progress: Progress = Progress(
            SpinnerColumn(), BarColumn(), TextColumn("{task.description}", markup=False), console=console
        )
        self._task: TaskID = self._progress.add_task("")
        self._pace = Pace()
        self._is_away = False
        self._progress.start()

    def told(self, standing: Standing) -> None:
        over = standing.done + standing.failed
        self._pace.take(over, time.monotonic())
        said = f"{describe(standing)}  {self._pace.text(standing.items - over)}"
        self._progress.update(self._task, total=standing.items, completed=over, description=said)

    def away(self, error: OutliveError) -> None:
        self._progress.console.print(f"… {clean_line(error.message)} Waiting for it.")

    def back(self) -> None:
        self._progress.console.print("… the stack is back.")

    def close(self) -> None:
        self._progress.stop()


def run_to_screen(
    folder: Path, header: Header, items: list[Item], options: Options, *, quiet: bool
) -> tuple[Counts, list[Line], list[Line]]:
    """Run it to its end; how it stands then, what failed, what waits. Ctrl-C leaves, and says how to go on."""
    watch = Bar() if sys.stderr.isatty() and not quiet else Lines(quiet=quiet)

    async def go() -> Counts:
        async with AsyncClient(patience_s=PATIENCE_S) as client:
            return await BatchRun(client, record, items, watch, options).run()

    try:
        with open_record(folder, header) as record:
            counts = anyio.run(go)
            return counts, record.failures, record.waiting
    except (KeyboardInterrupt, OutliveError, BaseExceptionGroup):
        watch.close()
        if (folder / "batch.json").exists():
            print(
                "\nleft: turns that were begun go on. The same command again goes on where this was.",
                file=sys.stderr,
                flush=True,
            )
        raise
    finally:
        watch.close()
