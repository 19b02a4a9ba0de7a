"""Terminals on PTYs of this host, for the machines of `local_machines`. For tests alone.

A peer of the node's terminal door: real programs, real sizes and signals, the real rules of the lease, and recordings
in a real object store, without a sandbox and without a journal that survives.
"""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc

from outlive.base import Clock, FencedError, MachineId, NotFoundError, TerminalId, UnavailableError
from outlive.machine.door import Output
from outlive.machine.records import MachineRecords
from outlive.machine.status import Effect
from outlive.machine.terminal.door import Act, AttachTerminal, OpenTerminal, RunInTerminal, TerminalView
from outlive.machine.terminal.frames import FrameDecoder, encode
from outlive.machine.terminal.newest import Newest
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.screen import Screens
from outlive.machine.terminal.status import Operator, Terminal
from outlive.testing.local_pty import LocalStream, LocalTerminal, Upload


class LocalAttachment:
    """Frames of an attachment, over a connection."""

    def __init__(self, frames: LocalStream) -> None:
        self._frames = frames

    async def run(self, stream: anyio.abc.ByteStream) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._hear, stream)
            try:
                while (frame := await self._frames.receive()) is not None:
                    await stream.send(encode(*frame))
                await stream.send_eof()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            # The other side closes now. A wait for it that is cancelled in the moment it does is an error in anyio.

    async def _hear(self, stream: anyio.abc.ByteStream) -> None:
        decoder = FrameDecoder()
        try:
            async for data in stream:
                for frame in decoder.feed(data):
                    await self._frames.send(*frame)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        await self._frames.aclose()


class LocalTerminals:
    """A `TerminalDoor`."""

    def __init__(
        self,
        machines: MachineRecords,
        records: TerminalRecords,
        upload: Upload,
        screens: Screens,
        clock: Clock,
        root: Path,
        group: anyio.abc.TaskGroup,
    ) -> None:
        self.records = records
        self.upload = upload
        self.screens = screens
        self.clock = clock
        self._machines = machines
        self._root = root
        self._group = group
        self._open: dict[TerminalId, LocalTerminal] = {}
        self.is_away = False  # as a node that is being restarted
        self.fails_after_act = False  # as a node that dies between the deed and the answer

    async def open(self, machine: MachineId, generation: int, request: OpenTerminal) -> TerminalView:
        await self._check(machine, generation)
        if request.terminal not in self._open:
            now = self.clock.now()
            argv = ("bash", "-c", request.command) if request.command is not None else request.argv
            record = await self.records.create(
                Terminal(
                    id=request.terminal,
                    machine=machine,
                    name=request.terminal,
                    owner=request.owner,
                    command=argv,
                    cols=request.cols,
                    rows=request.rows,
                    created_at=now,
                    changed_at=now,
                )
            )
            cwd = self._root / machine / request.cwd.lstrip("/")
            local = self._open[request.terminal] = LocalTerminal(record, request, self, cwd)
            self._group.start_soon(local.read)
        return self._open[request.terminal].view()

    async def view(self, machine: MachineId, generation: int, terminal: TerminalId) -> TerminalView:
        return (await self._find(machine, generation, terminal)).view()

    async def views(self, machine: MachineId, generation: int) -> Sequence[TerminalView]:
        await self._check(machine, generation)
        return [each.view() for each in self._open.values() if each.record.machine == machine]

    async def act(
        self, machine: MachineId, generation: int, terminal: TerminalId, operator: Operator, act: Act
    ) -> TerminalView:
        found = await self._find(machine, generation, terminal)
        await found.act(operator, act)
        if self.fails_after_act:
            raise UnavailableError("node.away", "The node went away before it could answer.")
        return found.view()

    async def attach(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> LocalStream:
        return await (await self._find(machine, generation, terminal)).attach(request)

    @asynccontextmanager
    async def attached(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> AsyncIterator["LocalAttachment"]:
        """As `attach`, for a connection that is here already."""
        stream = await self.attach(machine, generation, terminal, request)
        try:
            yield LocalAttachment(stream)
        finally:
            await stream.aclose()

    async def flush(self, machine: MachineId, generation: int, terminal: TerminalId) -> Terminal:
        return await (await self._find(machine, generation, terminal)).flush()

    async def newest(self, machine: MachineId, generation: int, terminal: TerminalId) -> Newest:
        return (await self._find(machine, generation, terminal)).newest()

    async def run(self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal) -> Effect:
        raise NotFoundError("terminal.no_shell", "Nothing is run in terminals of this host.")

    async def follow(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal
    ) -> AsyncIterator[Output | Effect]:
        yield await self.run(machine, generation, terminal, request)

    # ── what happens to their machines and to their node ──

    async def sleep(self, machine: MachineId) -> None:
        for each in self._of(machine):
            each.stop(signal.SIGSTOP)
            await each.flush()
            each.send_away()

    async def store(self, machine: MachineId) -> None:
        """What was recorded, before the machine goes."""
        for each in self._of(machine):
            await each.flush()

    async def wake(self, machine: MachineId) -> None:
        for each in self._of(machine):
            each.stop(signal.SIGCONT)

    def cut(self) -> None:
        """As if the node were stopped and started again."""
        for each in self._open.values():
            each.cut()

    def _of(self, machine: MachineId) -> list[LocalTerminal]:
        return [each for each in self._open.values() if each.record.machine == machine and each.record.is_open]

    def close(self) -> None:
        for each in self._open.values():
            each.close()

    async def _find(self, machine: MachineId, generation: int, terminal: TerminalId) -> LocalTerminal:
        await self._check(machine, generation)
        found = self._open.get(terminal)
        if found is None:
            raise NotFoundError("terminal.unknown", f"There is no terminal {terminal!r}.")
        return found

    async def _check(self, machine: MachineId, generation: int) -> None:
        if self.is_away:
            raise UnavailableError("node.away", "The node is away; try again.")
        record = await self._machines.get(machine)
        if record.generation != generation or record.state not in ("running", "paused"):
            raise FencedError("machine.fenced", f"Machine {machine!r} is at generation {record.generation}.")


@asynccontextmanager
async def open_local_terminals(
    machines: MachineRecords,
    records: TerminalRecords,
    upload: Upload,
    screens: Screens,
    clock: Clock,
    root: Path,
) -> AsyncIterator[LocalTerminals]:
    async with anyio.create_task_group() as group:
        local = LocalTerminals(machines, records, upload, screens, clock, root, group)
        try:
            yield local
        finally:
            group.cancel_scope.cancel()
            local.close()
