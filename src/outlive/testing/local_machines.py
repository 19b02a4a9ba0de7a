"""Machines made of nothing but processes and folders of this host: no isolation, no memory to save. For tests alone.

A peer of the node's door and of the settler, so that everything in front of them is tested with commands that really
run, files that really are there and servers that really listen.
"""

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.abc

from outlive.base import (
    Clock,
    ConflictError,
    EffectId,
    FencedError,
    MachineId,
    NodeId,
    NotFoundError,
    UnavailableError,
    new_checkpoint_id,
    new_node_id,
)
from outlive.machine import lifecycle
from outlive.machine.door import ExecRequest, FileEntry, FileKind, Output, ProcessEntry, digest_of
from outlive.machine.records import Records
from outlive.machine.status import Checkpoint, Effect, Machine, Node
from outlive.testing.local_terminals import LocalTerminals

_PIECE = 64 * 1024
_STEPS = 10


class LocalMachines:
    """A settler and a door over `records`, with one node."""

    def __init__(self, records: Records, clock: Clock, root: Path, address: str) -> None:
        self.node: NodeId = new_node_id()
        self._records = records
        self._clock = clock
        self._root = root
        self._address = address
        self._settling = anyio.Lock()
        self._running: dict[EffectId, subprocess.Popen[bytes]] = {}
        self._typed: dict[EffectId, int] = {}
        self.terminals: LocalTerminals | None = None  # of these machines: they sleep and wake with them

    async def renew(self) -> None:
        now = self._clock.now()
        node = Node(id=self.node, address=self._address, lease_until=now, capacity={"machines": 10}, started_at=now)
        await self._records.nodes.renew(node, lease_s=3600)

    def folder(self, machine: MachineId) -> Path:
        return self._root / machine

    # ── settler ──

    async def settle(self, machine: MachineId) -> None:
        async with self._settling:  # one run at a time, as a workflow has it
            await self._settle(machine)

    async def _settle(self, machine: MachineId) -> None:
        for _ in range(_STEPS):
            record = await self._records.machines.get(machine)
            step = lifecycle.next_step(record, is_node_gone=False)
            if step is None:
                return
            await self._take(record, step)

    async def _take(self, record: Machine, step: lifecycle.Step) -> None:
        change, now, node = self._records.machines.change, self._clock.now(), self.node
        match step:
            case "boot" | "wake":
                begun = await change(record.id, lambda machine: lifecycle.begin_up(machine, node, now))
                (self.folder(record.id) / "workspace").mkdir(parents=True, exist_ok=True)
                generation = begun.generation
                if self.terminals is not None:
                    await self.terminals.wake(record.id)
                await change(
                    record.id,
                    lambda m: lifecycle.end_up(m, node, generation, now, base_key="local", is_cold=False),
                )
            case "freeze":
                await change(record.id, lambda m: lifecycle.end_freeze(m, node, record.generation, now))
            case "thaw":
                await change(record.id, lambda m: lifecycle.end_thaw(m, node, record.generation, now))
            case "checkpoint" | "hibernate":
                await self._save(record, is_last=step == "hibernate")
            case "remove":
                if self.terminals is not None:
                    await self.terminals.store(record.id)
                await change(record.id, lambda m: lifecycle.end_remove(m, now))
            case "declare_lost":
                raise AssertionError("the node is always there")

    async def _save(self, record: Machine, *, is_last: bool) -> None:
        now, node, made = self._clock.now(), self.node, new_checkpoint_id()
        generation = record.generation
        number = (
            await self._records.machines.change(record.id, lambda m: lifecycle.begin_checkpoint(m, node, generation))
        ).checkpoints_begun
        checkpoint = Checkpoint(
            id=made,
            machine=record.id,
            generation=record.generation,
            created_at=now,
            deadline_at=now + timedelta(hours=1),
        )
        await self._records.checkpoints.begin(checkpoint, node=node)
        await self._records.checkpoints.finish(checkpoint.model_copy(update={"state": "ready"}), node=node)
        await self._records.machines.change(
            record.id,
            lambda m: lifecycle.end_checkpoint(m, node, generation, made, now, number=number, has_memory=False),
        )
        if is_last:
            if self.terminals is not None:
                await self.terminals.sleep(record.id)
            await self._records.machines.change(
                record.id, lambda m: lifecycle.end_hibernate(m, node, generation, made, now)
            )

    # ── door: commands ──

    async def exec(self, machine: MachineId, generation: int, request: ExecRequest) -> Effect:
        async for told in self.follow(machine, generation, request):
            if isinstance(told, Effect):
                return told
        raise AssertionError("a command has a result")

    async def follow(self, machine: MachineId, generation: int, request: ExecRequest) -> AsyncIterator[Output | Effect]:
        await self._check(machine, generation)
        effects = self._records.effects
        begun = await effects.begin(
            machine,
            request.effect_id,
            node=self.node,
            generation=generation,
            digest=digest_of(request),
            at=self._clock.now(),
        )
        if not begun.is_new and (begun.effect.is_over or request.background):
            yield begun.effect
            return
        try:
            process = self._running.get(request.effect_id) or self._start(machine, request)
        except OSError as error:
            yield await self._never_started(begun.effect, request, error)
            return
        if request.background:
            yield begun.effect
            return
        *printed, is_late = await anyio.to_thread.run_sync(
            _communicate, process, request.timeout_s, abandon_on_cancel=True
        )
        if printed[0]:
            yield Output("stdout", 0, printed[0])
        if printed[1]:
            yield Output("stderr", 0, printed[1])
        yield await effects.finish(
            begun.effect.model_copy(
                update={
                    "state": "timeout" if is_late else "finished",
                    "exit_code": None if is_late else process.returncode,
                    "stdout": printed[0].decode(errors="replace"),
                    "stderr": printed[1].decode(errors="replace"),
                    "ended_at": self._clock.now(),
                }
            )
        )

    def _start(self, machine: MachineId, request: ExecRequest) -> "subprocess.Popen[bytes]":
        argv = ["bash", "-c", request.command] if request.command is not None else list(request.argv or ())
        process = subprocess.Popen(  # noqa: S603  commands are what it is for
            argv,
            cwd=self._place(machine, request.cwd),
            env={"PATH": os.environ["PATH"], **request.env},
            stdin=subprocess.PIPE if request.background else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running[request.effect_id] = process
        return process

    async def _never_started(self, effect: Effect, request: ExecRequest, error: OSError) -> Effect:
        is_missing = isinstance(error, FileNotFoundError) and error.filename == (request.argv or ("",))[0]
        told = {
            "state": "finished",
            "exit_code": 127 if is_missing else 126,
            "stderr": f"{error.filename!r} did not start: {error.strerror}.\n",
            "ended_at": self._clock.now(),
        }
        return await self._records.effects.finish(effect.model_copy(update=told))

    async def effect(self, machine: MachineId, generation: int, effect: EffectId) -> Effect:
        found = await self._records.effects.find(machine, effect)
        if found is None:
            raise NotFoundError("effect.unknown", f"Machine {machine!r} knows no effect {effect!r}.")
        return found

    async def signal(self, machine: MachineId, generation: int, effect: EffectId, number: int) -> None:
        os.killpg(self._process(effect).pid, number)

    async def write_stdin(
        self,
        machine: MachineId,
        generation: int,
        effect: EffectId,
        data: bytes,
        *,
        end: bool,
        offset: int | None = None,
    ) -> int:
        pipe = self._process(effect).stdin
        assert pipe is not None
        at = self._typed.get(effect, 0)
        if offset is not None and offset > at:
            raise ConflictError("effect.stdin_hole", f"{at} bytes of stdin have come.", stdin_at=at)
        new = data if offset is None else data[at - offset :]
        pipe.write(new)
        pipe.flush()
        self._typed[effect] = at + len(new)
        if end:
            pipe.close()
        return self._typed[effect]

    def _process(self, effect: EffectId) -> "subprocess.Popen[bytes]":
        process = self._running.get(effect)
        if process is None or process.poll() is not None:
            raise ConflictError("effect.over", f"Effect {effect!r} is over.")
        return process

    # ── door: files ──

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        await self._check(machine, generation)
        return _entry(self._there(machine, path), follow=True)

    async def list_files(self, machine: MachineId, generation: int, path: str) -> Sequence[FileEntry]:
        await self._check(machine, generation)
        folder = self._there(machine, path)
        if not folder.is_dir():
            raise ConflictError("file.not_a_directory", f"{path!r} is not a directory.")
        return [_entry(each, follow=False) for each in sorted(folder.iterdir())]

    @asynccontextmanager
    async def read_file(
        self, machine: MachineId, generation: int, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._check(machine, generation)
        place = self._there(machine, path)
        if not place.is_file():
            raise ConflictError("file.not_a_file", f"{path!r} is not a regular file.")

        async def pieces() -> AsyncIterator[bytes]:
            left = limit
            with place.open("rb") as file:
                file.seek(offset)
                while piece := file.read(_PIECE if left is None else min(_PIECE, left)):
                    left = None if left is None else left - len(piece)
                    yield piece

        yield pieces()

    async def write_file(
        self, machine: MachineId, generation: int, path: str, data: AsyncIterator[bytes], *, mode: int | None = None
    ) -> int:
        await self._check(machine, generation)
        place = self._place(machine, path)
        if place.is_dir():
            raise ConflictError("file.is_a_directory", f"{path!r} is a directory.")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConflictError("file.not_a_directory", f"Something above {path!r} is no directory.") from None
        waiting = place.with_name(".new")
        size = 0
        try:
            with waiting.open("wb") as file:
                async for piece in data:
                    size += file.write(piece)
            waiting.chmod(0o644 if mode is None else mode)
            waiting.rename(place)
        finally:
            waiting.unlink(missing_ok=True)
        return size

    async def delete_file(self, machine: MachineId, generation: int, path: str, *, recursive: bool = False) -> None:
        await self._check(machine, generation)
        place = self._there(machine, path)
        if place.is_dir() and not recursive:
            raise ConflictError("file.is_a_directory", f"{path!r} is a directory.")
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()

    # ── door: what runs, what listens ──

    async def processes(self, machine: MachineId, generation: int) -> Sequence[ProcessEntry]:
        await self._check(machine, generation)
        return [
            ProcessEntry(pid=process.pid, parent=1, user=0, state="S", command=str(process.args), effect=effect)
            for effect, process in self._running.items()
            if process.poll() is None
        ]

    async def ports(self, machine: MachineId, generation: int) -> Sequence[int]:
        await self._check(machine, generation)
        return []

    async def connect(self, machine: MachineId, generation: int, port: int) -> anyio.abc.ByteStream:
        await self._check(machine, generation)
        try:
            return await anyio.connect_tcp("127.0.0.1", port)
        except OSError:
            raise UnavailableError("port.refused", f"Nobody listens on port {port}.", port=port) from None

    def close(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    async def _check(self, machine: MachineId, generation: int) -> None:
        record = await self._records.machines.get(machine)
        if record.generation != generation or record.state != "running":
            raise FencedError("machine.fenced", f"Machine {machine!r} is at generation {record.generation}.")

    def _place(self, machine: MachineId, path: str) -> Path:
        return self.folder(machine) / path.lstrip("/")

    def _there(self, machine: MachineId, path: str) -> Path:
        place = self._place(machine, path)
        if not place.exists():
            raise NotFoundError("file.unknown", f"There is no {path!r}.")
        return place


def _entry(place: Path, *, follow: bool) -> FileEntry:
    found = place.stat(follow_symlinks=follow)
    kind: FileKind = "file"
    if stat.S_ISDIR(found.st_mode):
        kind = "directory"
    elif stat.S_ISLNK(found.st_mode):
        kind = "symlink"
    return FileEntry(
        name=place.name,
        kind=kind,
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        modified_at=datetime.fromtimestamp(found.st_mtime, UTC),
        target=str(place.readlink()) if kind == "symlink" else None,
    )


def _communicate(process: "subprocess.Popen[bytes]", timeout_s: float) -> tuple[bytes, bytes, bool]:
    """What it printed, and whether it was killed for being late. In one thread: two would read past each other."""
    try:
        return *process.communicate(timeout=timeout_s), False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return *process.communicate(), True
