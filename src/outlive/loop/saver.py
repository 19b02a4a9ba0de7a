"""Asks for a checkpoint of a conversation's machine when a turn has ended, in the background: no end waits for it.

Whether there is anything to save is the machine's own business (`ConversationMachines.save`). One that cannot be saved
now is saved by the node's own interval: nothing here is tried again.
"""

import logging

import anyio

from outlive.base import ConversationId, OutliveError
from outlive.loop.tools import ToolParts
from outlive.loop.views import View

WAITING_LIMIT = 256
_AT_ONCE = 2
_WITHIN_S = 300.0

_log = logging.getLogger(__name__)


class Saver:
    def __init__(self, tools: ToolParts) -> None:
        self._machines = tools.machines
        self._send, self._receive = anyio.create_memory_object_stream[ConversationId](WAITING_LIMIT)

    def note_end(self, view: View) -> None:
        """A turn has ended. When too many wait, this one is left out."""
        if self._machines is None or view.state.machine is None:
            return
        try:
            self._send.send_nowait(view.conversation)
        except anyio.WouldBlock:
            _log.warning("machine is not saved now: too many wait", extra={"conversation": view.conversation})

    def close(self) -> None:
        self._send.close()
        self._receive.close()

    async def run(self) -> None:
        """Save what is noted, for ever."""
        async with anyio.create_task_group() as group:
            for _ in range(_AT_ONCE):
                group.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            conversation = await self._receive.receive()
            if self._machines is None:
                continue
            try:
                with anyio.move_on_after(_WITHIN_S):
                    await self._machines.save(conversation)
            except OutliveError as error:
                _log.warning("machine is not saved: %s", error.message, extra={"conversation": conversation})
