"""For the processes that a benchmark starts: say things, be told things, and end when the bench is gone."""

import os
import sys
import threading
from typing import Any

import orjson


def say(**words: Any) -> None:
    """One JSON line on standard output, at once."""
    sys.stdout.buffer.write(orjson.dumps(words) + b"\n")
    sys.stdout.buffer.flush()


def hear() -> dict[str, Any]:
    """What the bench says next; ends this process when there is no bench any more."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    words: dict[str, Any] = orjson.loads(line)
    return words


def end_with_the_bench() -> None:
    """For a process that hears nothing: end it when standard input is closed."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
