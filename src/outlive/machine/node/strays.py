"""What a step left half-way while the node lives: a sandbox that no record names, one that nobody took up, one that was
left paused, a record without a sandbox; and what machines that are not here any more have left (`leftovers`). Looked
for at a start by `adopt`, and here for as long as the node runs.

Rule: whatever a step has in hand is left to it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

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
    with _said_and_tried_again("sandboxes could not be looked for"):
        for sandbox in await node.parts.sandboxes.find_all():
            with _said_and_tried_again(f"sandbox of machine {sandbox.machine}"):
                await node.adoption.tend(sandbox)
    with _said_and_tried_again("records without a sandbox could not be looked for"):
        await node.adoption.mourn()
    with _said_and_tried_again("what machines have left here could not be looked for"):
        await node.leftovers.look()


@contextmanager
def _said_and_tried_again(what: str) -> Iterator[None]:
    """What fails is tried again with the next look; an `OSError` is the host's trouble, of descriptors or a disk."""
    try:
        yield
    except* (OutliveError, OSError) as failed:
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):  # out of the groups that tasks wrap it in
            error = error.exceptions[0]
        _log.warning("%s: %s", what, error.message if isinstance(error, OutliveError) else error)
