"""The node's own side of the door: what is asked of machines that are up here. `machine.door` says what it promises."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import anyio
import anyio.abc

from outlive.base import ConflictError, DeadlineError, EffectId, ExhaustedError, MachineId, NotFoundError
from outlive.machine.door import ExecRequest, FileEntry, Output, ProcessEntry
from outlive.machine.guest_link.facts import EMPTY_PAGES, FileFacts
from outlive.machine.node.node import Node
from outlive.machine.node.port_stream import PortStream
from outlive.machine.node.resident import Resident
from outlive.machine.node.run import FOLLOWER_QUEUE, Run
from outlive.machine.status import Effect

STDIN_WITHIN_S = 30.0
_LAST_MOMENT_S = 253_402_300_799.0  # of the year 9999: a guest may say anything
LIST_LIMIT = 20_000  # entries of one folder
LIST_WITHIN_S = 30.0


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
            so_far = run.so_far()  # at the same moment: what comes next goes to the follower
            try:
                for output in so_far:
                    yield output
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
            try:
                await guest.signal(effect, number)
            except NotFoundError:  # the guest has forgotten it, or never heard of it
                if (await self.effect(machine, generation, effect)).is_over:
                    raise ConflictError("effect.over", f"The command {effect!r} is over.") from None
                raise

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
        self._node.residents.get(machine, generation).check()
        run = self._node.runs.find(machine, effect)
        if run is None:
            raise ConflictError("effect.no_stdin", f"The command {effect!r} does not run here with an open stdin.")
        try:
            with anyio.fail_after(STDIN_WITHIN_S):
                await run.started.wait()
                return await run.type(data, offset=offset, end=end)
        except TimeoutError:
            raise DeadlineError("effect.stdin_full", f"The command {effect!r} does not read its stdin.") from None

    # ── files ──

    async def stat_file(self, machine: MachineId, generation: int, path: str) -> FileEntry:
        resident = self._node.residents.get(machine, generation)
        async with resident.use() as guest:
            return _entry(await guest.files.stat(path, follow=True, user=resident.spec.user))

    async def list_files(self, machine: MachineId, generation: int, path: str) -> Sequence[FileEntry]:
        resident = self._node.residents.get(machine, generation)
        try:
            with anyio.fail_after(LIST_WITHIN_S):
                async with resident.attach():
                    return await self._list(resident, path)
        except TimeoutError:
            message = f"The machine's guest did not list {path!r} within {LIST_WITHIN_S:g} s."
            raise DeadlineError("machine.guest_silent", message) from None

    async def _list(self, resident: Resident, path: str) -> Sequence[FileEntry]:
        found: list[FileEntry] = []
        after: str | None = None
        empty = 0
        while True:
            async with resident.use() as guest:
                page = await guest.files.list(path, after=after, user=resident.spec.user)
                empty += not page.entries
                if not page.is_last and empty > EMPTY_PAGES:
                    raise guest.accuse("a list of files without an end")
            found += [_entry(facts) for facts in page.entries]
            if page.is_last:
                return found
            if len(found) >= LIST_LIMIT:
                raise ExhaustedError("file.too_many", f"{path!r} holds more than {LIST_LIMIT} entries.")
            after = page.last

    @asynccontextmanager
    async def read_file(
        self, machine: MachineId, generation: int, path: str, *, offset: int = 0, limit: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        resident = self._node.residents.get(machine, generation)
        async with resident.attach(), AsyncExitStack() as stack:
            async with resident.use() as guest:
                reading = guest.files.read(path, offset=offset, limit=limit, user=resident.spec.user)
                content = await stack.enter_async_context(reading)
            yield aiter(content)

    async def write_file(
        self, machine: MachineId, generation: int, path: str, data: AsyncIterator[bytes], *, mode: int | None = None
    ) -> int:
        resident = self._node.residents.get(machine, generation)
        resident.is_dirty = True
        async with resident.attach():
            async with resident.use() as guest:
                pass
            return await guest.files.write(path, data, mode=mode, parents=True, user=resident.spec.user)

    async def delete_file(self, machine: MachineId, generation: int, path: str, *, recursive: bool = False) -> None:
        resident = self._node.residents.get(machine, generation)
        resident.is_dirty = True
        async with resident.attach():
            async with resident.use() as guest:
                pass
            await guest.files.delete(path, recursive=recursive, user=resident.spec.user)

    # ── processes and ports ──

    async def processes(self, machine: MachineId, generation: int) -> Sequence[ProcessEntry]:
        async with self._node.residents.get(machine, generation).use() as guest:
            found = await guest.processes()
        return [
            ProcessEntry(pid=one.pid, parent=one.parent, user=one.uid, state=one.state, command=one.argv or one.name)
            for one in found
        ]

    async def ports(self, machine: MachineId, generation: int) -> Sequence[int]:
        async with self._node.residents.get(machine, generation).use() as guest:
            return await guest.ports()

    async def connect(self, machine: MachineId, generation: int, port: int) -> anyio.abc.ByteStream:
        resident = self._node.residents.get(machine, generation)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(resident.attach())
            async with resident.use() as guest:
                stream = await stack.enter_async_context(guest.connect(port))
            return PortStream(stream, stack.pop_all())


def _entry(facts: FileFacts) -> FileEntry:
    return FileEntry(
        name=facts.name,
        kind="symlink" if facts.kind == "link" else facts.kind,
        size=facts.size,
        mode=facts.mode,
        modified_at=datetime.fromtimestamp(min(facts.mtime_ns / 1e9, _LAST_MOMENT_S), UTC),
        target=facts.target,
    )
