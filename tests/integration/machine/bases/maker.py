"""A process that makes a base, to be killed or to be waited for: `maker.py ARCHIVE CACHE`. Says a line per step."""

import sys
from pathlib import Path

from outlive.machine.backends.bases import ensure_base


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    print(ensure_base(f"tar:{sys.argv[1]}", Path(sys.argv[2]), say=say).key, flush=True)
