"""How far a save, a verification or a fetch has come. Pure: values only."""

from collections.abc import Callable
from typing import Literal, NamedTuple


class Progress(NamedTuple):
    phase: Literal["save", "verify", "fetch"]
    done_bytes: int
    total_bytes: int | None
    """None where nobody knows yet: the size of a filesystem delta is known when it has been read."""


ProgressCallback = Callable[[Progress], None]
"""Called in the event loop: it must be quick."""


def no_progress(progress: Progress) -> None:
    """Nobody wants to know."""
