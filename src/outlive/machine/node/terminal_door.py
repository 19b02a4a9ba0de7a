"""The node's own side of the door to terminals. `machine.terminal.door` says what it promises."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio.abc

from outlive.base import MachineId, TerminalId
from outlive.machine.caller import closing
from outlive.machine.door import Output
from outlive.machine.memory_stream import memory_pair
from outlive.machine.node.node import Node
from outlive.machine.node.resident import Resident
from outlive.machine.node.terminals.host import TerminalHost
from outlive.machine.node.terminals.observer import Observer
from outlive.machine.status import Effect
from outlive.machine.terminal.byte_frames import ByteFrames
from outlive.machine.terminal.door import (
    Act,
    AttachTerminal,
    Close,
    FrameStream,
    Grant,
    Input,
    OpenTerminal,
    Resize,
    RunInTerminal,
    Signal,
    Take,
    TerminalView,
    Yield,
)
from outlive.machine.terminal.lease import check_may_type, check_open
from outlive.machine.terminal.newest import Newest
from outlive.machine.terminal.status import Operator, Size, Terminal


class NodeTerminalDoor:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._hosts = node.terminals

    async def open(self, machine: MachineId, generation: int, request: OpenTerminal) -> TerminalView:
        return (await self._hosts.open(self._resident(machine, generation), request)).view()

    async def view(self, machine: MachineId, generation: int, terminal: TerminalId) -> TerminalView:
        return (await self._host(machine, generation, terminal)).view()

    async def views(self, machine: MachineId, generation: int) -> Sequence[TerminalView]:
        """Those that have ended as their records are."""
        resident = self._resident(machine, generation)
        live = {host.terminal.id: host for host in self._hosts.of(resident) if host.is_ready}
        return [
            live[record.id].view() if record.id in live else TerminalView(terminal=record, offset=record.recorded_to)
            for record in await self._node.parts.terminals.list(machine)
        ]

    async def act(
        self, machine: MachineId, generation: int, terminal: TerminalId, operator: Operator, act: Act
    ) -> TerminalView:
        host = await self._host(machine, generation, terminal)
        check_open(host.terminal)
        match act:
            case Take():
                await host.keyboard.take(operator)
            case Yield():
                await host.keyboard.yield_(operator)
            case Grant():
                await host.keyboard.grant(operator, act.operator)
            case Input():
                await host.type(operator, act.data)
            case Resize():
                check_may_type(host.terminal.lease, operator)
                await host.window.resize(Size(act.cols, act.rows), operator)
            case Signal():
                await host.signal(operator, act.number)
            case Close():
                await host.close(operator)
        return host.view()

    async def flush(self, machine: MachineId, generation: int, terminal: TerminalId) -> Terminal:
        return await (await self._host(machine, generation, terminal)).flush()

    async def newest(self, machine: MachineId, generation: int, terminal: TerminalId) -> Newest:
        host = await self._host(machine, generation, terminal)
        held = await host.recorder.unstored()
        view = host.view()
        return Newest(terminal=view.terminal, offset=view.offset, held=held)

    @asynccontextmanager
    async def attached(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> AsyncIterator[Observer]:
        """As `attach`, for a connection that is here already: the caller runs it."""
        host = await self._host(machine, generation, terminal)
        async with host.attached(request) as observer:
            yield observer

    async def attach(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> FrameStream:
        """For somebody in this process."""
        host = await self._host(machine, generation, terminal)
        near, far = memory_pair()
        try:
            await self._node.housing.tasks.start(_attend, host, request, far)
        except BaseException:
            await anyio.aclose_forcefully(near)
            raise
        return ByteFrames(near)

    async def run(self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal) -> Effect:
        host = await self._host(machine, generation, terminal)
        return await self._hosts.shell_runs.run(host, request)

    async def follow(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal
    ) -> AsyncIterator[Output | Effect]:
        host = await self._host(machine, generation, terminal)
        async with closing(self._hosts.shell_runs.follow(host, request)) as told:
            async for piece in told:
                yield piece

    def _resident(self, machine: MachineId, generation: int) -> Resident:
        return self._node.residents.get(machine, generation)

    async def _host(self, machine: MachineId, generation: int, terminal: TerminalId) -> TerminalHost:
        return await self._hosts.find(self._resident(machine, generation), terminal)


async def _attend(
    host: TerminalHost,
    request: AttachTerminal,
    stream: anyio.abc.ByteStream,
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    async with stream, host.attached(request) as observer:
        task_status.started()
        await observer.run(stream)
