"""What a step left half-way while the node lives: a sandbox that no record names, one that nobody took up, one that was
left paused, a record without a sandbox; and what machines that are not here any more have left (`leftovers`). Looked
for at a start by `adopt`, and here for as long as the node runs.

Rule: whatever a step has in hand is left to it.
"""

import logging

import anyio

from outlive.base import OutliveError
from outlive.machine.node.node import Node

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 10.0


async def watch_strays(node: Node) -> None:
    while True:
        await anyio.sleep(_LOOK_EVERY_S)
        await look_for_strays(node)


async def look_for_strays(node: Node) -> None:
    for sandbox in await node.parts.sandboxes.find_all():
        try:
            await node.adoption.tend(sandbox)
        except OutliveError as error:
            _log.warning("sandbox of machine %s: %s", sandbox.machine, error.message)
    try:
        await node.adoption.mourn()
    except OutliveError as error:
        _log.warning("records without a sandbox could not be looked for: %s", error.message)
    try:
        await node.leftovers.look()
    except OSError as error:  # of the host's disk
        _log.warning("what machines have left here could not be looked for: %s", error)
