"""A process that runs a stack for a benchmark of machines and cleans up after it: sandboxes outlive those who start
them, so somebody has to be there who ends them, also when the bench is killed.

Told on standard input where the home is, it starts the stack and says that it is ready. When standard input is closed,
or it is told to end, it stops the stack and destroys every sandbox below the folders that it was told of.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio

from bench.lifeline import hear, say
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.processes.stack import start_detached, stop
from outlive.wiring.node import cgroup_name
from outlive.wiring.settings import Home, read_settings


async def _destroy_all(node_paths: Sequence[Path]) -> None:
    for path in node_paths:
        if path.exists():
            sandboxes = open_gvisor_sandboxes(path, cgroup_name(path))
            for sandbox in await sandboxes.find_all():
                await sandboxes.destroy(sandbox)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of standard input is what ends us, after cleaning up
    told = hear()
    home = Path(told["home"])
    os.environ.update(told["environment"])
    os.environ["OUTLIVE_HOME"] = str(home)
    try:
        started = start_detached(read_settings({"home": home}))
        say(url=started.url)
        hear()
    finally:
        stop(Home(home))
        anyio.run(_destroy_all, [Path(path) for path in told["node_paths"]])
        say(ended=True)


if __name__ == "__main__":
    main()
