"""Loading all that a process needs. Imported by itself in a moment: it stands before everything else."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import in it. None of what modules make is garbage, and the collector would look through all of it again and
    again; it will not look there later either."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
