"""`make crash`: all campaigns, one after the other; `ARGS=machines`, `points`, `loop` or `batch` is one of them."""

import sys
from collections.abc import Callable, Sequence

from crash.batch import campaign as batch
from crash.loop import campaign as loop
from crash.machines import campaign as machines
from crash.machines import points

CAMPAIGNS: dict[str, Callable[[Sequence[str]], None]] = {
    "machines": machines.main,
    "points": points.main,
    "loop": loop.main,
    "batch": batch.main,
}


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] in CAMPAIGNS:
        CAMPAIGNS[arguments[0]](arguments[1:])
    elif arguments:
        raise SystemExit(f"say which campaign: {' or '.join(CAMPAIGNS)}")
    else:
        for campaign in CAMPAIGNS.values():
            campaign([])


if __name__ == "__main__":
    main(sys.argv[1:])
