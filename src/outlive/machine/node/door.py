"""The node's own side of the door: what is asked of machines that are up here. `machine.door` says what it promises."""

from collections.abc import AsyncIterator

import anyio
import anyio.abc

from outlive.base import ConflictError, EffectId, MachineId, NotFoundError
from outlive.machine.door import ExecRequest, Output
from outlive.machine.node.node import Node
from outlive.machine.node.runs import FOLLOWER_QUEUE, Run
from outlive.machine.status import Effect


class NodeDoor:
    def __init__(self, node: Node) -> None:
        self._node = node

    # ── commands ──

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        run = await self._begin(machine, generation, request)
        if request.background:
            await run.started.wait()
            if run.error is not None:
                raise run.error
            return run.effect
        return await run.result()

    async def follow(self, machine: MachineId, generation: int, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        run = await self._begin(machine, generation, request)
        send, receive = anyio.create_memory_object_stream[Output](FOLLOWER_QUEUE)
        with send, receive:
            run.followers.append(send)
            try:
                async with anyio.create_task_group() as group:

                    async def close_at_the_end() -> None:
                        await run.done.wait()
                        send.close()

                    group.start_soon(close_at_the_end)
                    async for output in receive:
                        yield output
            finally:
                run.followers.remove(send)
        yield await run.result()

    async def _begin(self, machine: MachineId, generation: int, request: ExecRequest) -> Run:
        resident = self._node.residents.get(machine, generation)
        return await self._node.runs.begin(resident, request)

    async def effect(self, machine: MachineId, generation: int, effect: EffectId) -> Effect:
        found = await self._node.parts.effects.find(machine, effect)
        if found is None:
            raise NotFoundError("effect.unknown", f"Machine {machine!r} has no effect {effect!r}.")
        return found

    async def signal(self, machine: MachineId, generation: int, effect: EffectId, number: int) -> None:
        async with self._node.residents.get(machine, generation).use() as guest:
            await guest.signal(effect, number)

    async def write_stdin(
        self, machine: MachineId, generation: int, effect: EffectId, data: bytes, *, end: bool
    ) -> None:
        raise ConflictError("effect.no_stdin", f"The command {effect!r} was started without an open stdin.")
