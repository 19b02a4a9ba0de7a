"""The terminals of all machines that are up here: who hosts them, from a machine's coming up to its end.

Rule 1: whatever the guest holds has a record, and what it does not hold any more is `lost`. That is found out when a
        machine comes up or the node was restarted, and nobody waits for it but who asks for a terminal meanwhile.
Rule 2: nothing here keeps a machine from being saved, frozen or ended.
Rule 3: a host that fails, by whatever it was, is taken up again from its journal. All others, and the node, go on.
"""

import logging
from collections.abc import Callable, Iterator

import anyio
import anyio.abc

from outlive.base import (
    CrashPoint,
    FencedError,
    MachineId,
    NotFoundError,
    OutliveError,
    TerminalId,
    UnavailableError,
    is_id,
    reach,
)
from outlive.machine.guest_link import Guest
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import End, Resident
from outlive.machine.node.terminals.contained import contain
from outlive.machine.node.terminals.host import READY_WITHIN_S, TerminalHost
from outlive.machine.node.terminals.meeting import meet
from outlive.machine.node.terminals.shell_runs import ShellRuns
from outlive.machine.node.terminals.spool import Spool, spool_folder
from outlive.machine.terminal import lease
from outlive.machine.terminal.door import OpenTerminal
from outlive.machine.terminal.epochs import RESERVE_STEP
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.status import Epoch, Terminal

_LEASES_EVERY_S = 1.0
_FLUSH_WITHIN_S = 10.0
_MEET_AGAIN_S = 0.5
_FAILURES_LIMIT = 8  # in a row; then its terminal waits until somebody asks for it
_AGAIN_S, _AGAIN_LONGEST_S = 0.05, 10.0
_SOUND_AFTER_S = 60.0  # one that ran for so long has not failed before

_log = logging.getLogger(__name__)


class TerminalHosts:
    def __init__(self, parts: NodeParts, tasks: anyio.abc.TaskGroup) -> None:
        self.recordings = Recordings(parts.objects, parts.terminals)
        self.shell_runs = ShellRuns(parts, self.recordings, tasks)
        self._parts = parts
        self._tasks = tasks
        self._hosts: dict[TerminalId, TerminalHost] = {}
        self._supervised: set[tuple[Resident, TerminalId]] = set()  # one that has failed is taken up again soon
        self._kept: dict[TerminalId, int] = {}  # generations of terminals whose journals here are of use
        self._met: dict[Resident, anyio.Event] = {}  # their guest was asked what it holds

    def of(self, resident: Resident) -> Iterator[TerminalHost]:
        return (host for host in list(self._hosts.values()) if host.resident is resident)

    # ── a machine comes up, and ends ──

    def take_up(self, resident: Resident) -> None:
        """Host what it holds, soon."""
        self._met[resident] = met = anyio.Event()
        resident.on_end.append(lambda how: self._end(resident, how))
        self._tasks.start_soon(self._meet, resident, met)

    async def _meet(self, resident: Resident, met: anyio.Event) -> None:
        for _ in range(_FAILURES_LIMIT):
            if await contain(f"meeting the terminals of machine {resident.id}", lambda: self._meet_all(resident)):
                break
            await anyio.sleep(_MEET_AGAIN_S)
        met.set()

    async def _meet_all(self, resident: Resident) -> None:
        while resident.ended is None:
            try:
                async for terminal in meet(self._parts, self.recordings, resident):
                    await self._start(resident, terminal)
                return
            except FencedError:
                return
            except OutliveError as error:
                _log.info("machine %s: its terminals are not known yet: %s", resident.id, error.message)
                await anyio.sleep(_MEET_AGAIN_S)

    async def _start(self, resident: Resident, terminal: Terminal) -> None:
        while (old := self._hosts.get(terminal.id)) is not None:
            if old.resident is resident:
                return
            old.end("removed")
            await old.over.wait()
        if resident.ended is None:
            self._hosts[terminal.id] = host = TerminalHost(self._parts, self.recordings, resident, terminal)
            self._tasks.start_soon(self._supervise, host)

    async def _supervise(self, host: TerminalHost) -> None:
        supervised = (host.resident, host.terminal.id)
        self._supervised.add(supervised)
        try:
            await self._keep_up(host)
        finally:
            self._supervised.discard(supervised)

    async def _keep_up(self, host: TerminalHost) -> None:
        """Run it; one that fails is followed by another, which begins where its journal ends."""
        clock, failures = self._parts.clock, 0
        while True:
            begun_at = clock.monotonic()
            if await self._run(host):
                return
            failures = 1 if clock.monotonic() - begun_at > _SOUND_AFTER_S else failures + 1
            if failures > _FAILURES_LIMIT:
                _log.error("terminal %s is left alone: it has failed %d times", host.terminal.id, failures)
                return
            await anyio.sleep(min(_AGAIN_S * 2 ** (failures - 1), _AGAIN_LONGEST_S))
            resident, terminal = host.resident, host.terminal
            if resident.ended is not None or terminal.id in self._hosts:
                return
            self._hosts[terminal.id] = host = TerminalHost(self._parts, self.recordings, resident, terminal)

    async def _run(self, host: TerminalHost) -> bool:
        """Whether it came to its end as it should."""
        is_sound = False
        try:
            is_sound = await contain(f"the host of terminal {host.terminal.id}", host.run)
        finally:
            if not is_sound:
                host.leave()
            if self._hosts.get(host.terminal.id) is host:
                del self._hosts[host.terminal.id]
            host.over.set()
        return is_sound

    def _end(self, resident: Resident, how: End) -> None:
        self._met.pop(resident, None)
        for host in self.of(resident):
            host.end(how)

    # ── asked for ──

    async def open(self, resident: Resident, request: OpenTerminal) -> TerminalHost:
        """A new one; one that is there already under this id is that one."""
        try:
            await self._parts.terminals.get(request.terminal)
        except NotFoundError:
            # The guest first: it opens an id once. If we die now it is found there, and gets its record then.
            argv = ("bash", "-c", request.command) if request.command is not None else request.argv
            async with resident.use() as guest:
                await guest.terminals.open(
                    request.terminal,
                    argv=argv,
                    columns=request.cols,
                    rows=request.rows,
                    env=request.env,
                    cwd=request.cwd,
                    user=request.user or resident.spec.user,
                )
            reach(CrashPoint.TERMINAL_AFTER_OPEN)
            resident.is_dirty = True
            record = await self._parts.terminals.ensure(self._new_record(resident, request, argv))
            await self._start(resident, record)
        return await self.find(resident, request.terminal)

    def _new_record(self, resident: Resident, request: OpenTerminal, argv: tuple[str, ...] | None) -> Terminal:
        now = self._parts.clock.now()
        return Terminal(
            id=request.terminal,
            machine=resident.id,
            name=request.terminal,
            owner=request.owner,
            command=argv,
            cols=request.cols,
            rows=request.rows,
            epoch=Epoch(generation=resident.generation),
            reserved_to=RESERVE_STEP,
            created_at=now,
            changed_at=now,
        )

    async def find(self, resident: Resident, terminal: TerminalId) -> TerminalHost:
        host = self._hosts.get(terminal)
        if host is None or host.resident is not resident:
            host = await self._wait_for(resident, terminal)
        await host.wait_ready()
        return host

    async def _wait_for(self, resident: Resident, terminal: TerminalId) -> TerminalHost:
        record = await self._parts.terminals.get(terminal)
        if record.machine != resident.id:
            raise NotFoundError("terminal.unknown", f"Machine {resident.id!r} has no terminal {terminal!r}.")
        lease.check_open(record)
        if "halted" not in resident.frozen:
            await resident.wake_up()  # a frozen machine says nothing of what it holds
        met = self._met.get(resident)
        if met is not None:
            with anyio.move_on_after(READY_WITHIN_S):
                await met.wait()
        host = self._hosts.get(terminal)
        if host is None or host.resident is not resident:
            record = await self._parts.terminals.get(terminal)
            lease.check_open(record)
            # Whoever opened it had gone when its record was written, or its host has failed too often.
            is_left = (resident, terminal) not in self._supervised
            if is_left and record.epoch.generation == resident.generation:
                await self._start(resident, record)
            host = self._hosts.get(terminal)
        if host is None or host.resident is not resident:
            raise UnavailableError("terminal.not_ready", f"Terminal {terminal!r} is not ready yet; try again.")
        return host

    # ── around a checkpoint ──

    async def flush(self, resident: Resident) -> None:
        """What was recorded goes to the object store, if that is there: it is no reason to wait long."""
        with anyio.move_on_after(_FLUSH_WITHIN_S):
            for host in self.of(resident):
                try:
                    await host.wait_ready()
                    await host.flush()
                except OutliveError as error:
                    _log.warning("terminal %s is not stored yet: %s", host.terminal.id, error.message)

    async def salvage(self, machine: MachineId, generation: int) -> None:
        """Of a machine that died: what is here of its recordings, hosted by nobody and not in the object store yet."""
        for record in await self._parts.terminals.list(machine, include_ended=False):
            if record.id not in self._hosts:
                await self._salvage_one(record, generation)

    async def _salvage_one(self, record: Terminal, generation: int) -> None:
        spool = None
        try:
            spool = Spool.reopen(spool_folder(self._parts.path, record.id), record.id)
            if spool is not None and spool.generation == generation:
                spool.cut(self._parts.clock.now())
                await self.recordings.upload(spool, holder=(self._parts.node, generation))
        except OutliveError as error:
            _log.warning("terminal %s is not stored yet: %s", record.id, error.message)
        finally:
            if spool is not None:
                spool.close()

    async def rest(self, resident: Resident) -> None:
        """Before it sleeps, with nobody in it any more. What fails is raised: then it stays awake."""
        for host in self.of(resident):
            await host.rest()

    async def has_job(self, resident: Resident, guest: Guest, within_s: float) -> bool:
        """Whether something runs in front of a shell. Full-screen programs wait for somebody: they are no job."""
        names = {host.terminal.name for host in self.of(resident) if not host.is_full_screen}
        if not names:
            return False
        held = await guest.terminals.list(within_s)
        return any(each.terminal in names and each.foreground is not None and each.exit is None for each in held)

    # ── for as long as the node runs ──

    async def watch_leases(self) -> None:
        while True:
            await anyio.sleep(_LEASES_EVERY_S)
            for host in list(self._hosts.values()):
                try:
                    await contain(f"the lease of terminal {host.terminal.id}", host.expire_lease)
                except OutliveError as error:
                    _log.info("terminal %s: %s", host.terminal.id, error.message)

    async def forget(self, machine: MachineId) -> None:
        """The machine is deleted: what is left of its journals here goes. What was stored stays."""
        for terminal in await self._parts.terminals.list(machine):
            host = self._hosts.get(terminal.id)
            if host is not None:
                await host.over.wait()
            Spool(spool_folder(self._parts.path, terminal.id), terminal.id).discard()

    async def sweep(self, is_in_hand: Callable[[MachineId], bool]) -> None:
        """All journals that an earlier process of this node left, of terminals that have ended or went on elsewhere."""
        for terminal in self.left_behind():
            await self.sweep_one(terminal, is_in_hand)

    def left_behind(self) -> list[TerminalId]:
        parent = spool_folder(self._parts.path, TerminalId("any")).parent
        names = {one.name for one in parent.iterdir()} if parent.is_dir() else set[str]()
        self._kept = {terminal: epoch for terminal, epoch in self._kept.items() if terminal in names}
        return [TerminalId(name) for name in names if is_id(name, "term") and TerminalId(name) not in self._hosts]

    async def sweep_one(self, terminal: TerminalId, is_in_hand: Callable[[MachineId], bool]) -> None:
        """Remove its journal here if it has ended or went on elsewhere, and nobody has its machine in hand."""
        try:
            await self._sweep_one(terminal, is_in_hand)
        except OutliveError as error:
            _log.info("the journal of terminal %s stays: %s", terminal, error.message)

    async def _sweep_one(self, terminal: TerminalId, is_in_hand: Callable[[MachineId], bool]) -> None:
        try:
            record: Terminal | None = await self._parts.terminals.get(terminal)
        except NotFoundError:
            record = None
        epoch = record.epoch.generation if record is not None and record.is_open else None
        is_ours = record is not None and is_in_hand(record.machine)
        if terminal in self._hosts or is_ours or (epoch is not None and self._kept.get(terminal) == epoch):
            return
        folder = spool_folder(self._parts.path, terminal)
        spool = Spool.reopen(folder, terminal)
        try:
            if spool is not None and epoch is not None and epoch <= spool.generation:
                self._kept[terminal] = epoch  # its machine sleeps: no need to read it again before it was up
                return
            if spool is not None and record is not None and epoch is None:
                await self._store_end(spool, record)
        finally:
            if spool is not None:
                spool.close()
        if (spool is not None or epoch is None) and terminal not in self._hosts:
            self._kept.pop(terminal, None)
            Spool(folder, terminal).discard()

    async def _store_end(self, spool: Spool, record: Terminal) -> None:
        """Of one that has ended: what is here alone, and of its last life."""
        if spool.n <= record.segments or spool.generation < record.epoch.generation:
            return
        spool.cut(self._parts.clock.now())
        try:
            await self.recordings.upload(spool, holder=None)
        except OutliveError as error:
            if error.is_retryable:
                raise
            _log.error("terminal %s: the end of its recording is lost: %s", record.id, error.message)
