"""The clock that everybody is handed, so that tests can hold time still. Times are aware and UTC."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for deadlines and intervals, not for showing."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def to_text(moment: datetime) -> str:
    """RFC 3339, UTC, microseconds: one width, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"
