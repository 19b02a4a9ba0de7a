"""The node process: owns the machines of this host. They outlive it."""

import logging
import os

import anyio

from outlive.processes.ending import open_ending
from outlive.processes.logs import log_to_stderr
from outlive.processes.ready import tell_ready
from outlive.wiring.settings import Settings, prepare_home

_log = logging.getLogger(__name__)


def main(settings: Settings, lifeline_fd: int | None = None, ready_fd: int | None = None) -> None:
    """Run until SIGTERM, SIGINT or the end of the lifeline. The descriptors are those a supervisor passes on."""
    os.umask(0o077)
    log_to_stderr()
    prepare_home(settings)
    anyio.run(run_node, settings, lifeline_fd, ready_fd, backend_options={"use_uvloop": True})


async def run_node(settings: Settings, lifeline_fd: int | None = None, ready_fd: int | None = None) -> None:
    async with open_ending(lifeline_fd) as ending:
        _log.info("serving", extra={"path": str(settings.node_path)})
        tell_ready(ready_fd)
        await ending.wait()
    _log.info("stopped")
