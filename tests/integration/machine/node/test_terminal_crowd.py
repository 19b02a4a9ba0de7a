"""Many who watch, much that is printed, many terminals: every byte for who keeps up, an offset for who does not, and
little memory for those that only wait."""

import gc
import hashlib
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, Watcher, open_terminal, type_in
from machine_rooms import open_machine_room
from outlive.machine.node.node import Node
from outlive.machine.spec import Limits, MachineSpec
from outlive.machine.status import Machine

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(700)]

LINES = 6_400_000
MANY_LINES = 1_200_000
IDLE = 100
IDLE_LIMIT = 2_000_000  # bytes on the host for each


def _counted(lines: int) -> str:
    """A terminal prints nothing else than the numbers up to there. Through cat: seq alone would write line by line, and
    six million system calls of a sandbox are minutes that say nothing about us."""
    return f"stty -echo -onlcr; printf 'rea''dy\\n'; read; seq 1 {lines} | exec cat"


class _Digest(Watcher):
    """Keeps no byte, but what they come to."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()

    def taken(self, payload: bytes) -> None:
        self.digest.update(payload)
        if len(self.seen) > 100:
            del self.seen[:-100]


def _digest_of(lines: int) -> str:
    digest = hashlib.sha256(b"ready\n")
    for start in range(1, lines + 1, 100_000):
        digest.update(b"".join(b"%d\n" % n for n in range(start, min(start + 100_000, lines + 1))))
    return digest.hexdigest()


async def test_fifty_megabytes_reach_an_observer_and_the_recording_whole(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/bash", "-c", _counted(LINES)))
        watcher = _Digest()
        async with watcher.at(node, machine, terminal, ANN, "type"):
            await watcher.until_seen(b"ready")
            await watcher.send(b"\n")
            await eventually(lambda: watcher.final is not None, 500)
        assert watcher.said("gap") == watcher.said("detached") == []
        assert watcher.offset is not None
        assert watcher.offset > 50_000_000 - 2_000_000
        expected = _digest_of(LINES)
        assert watcher.digest.hexdigest() == expected

        async def is_stored() -> bool:
            return (await room.records.terminals.get(terminal)).recorded_to == watcher.offset

        await eventually(is_stored, 60)
        record, stored = await room.records.terminals.get(terminal), hashlib.sha256()
        async for piece in node.terminals.recordings.read_output(record):
            stored.update(piece.data)  # type: ignore[union-attr]
        assert stored.hexdigest() == expected


async def test_of_fifty_who_watch_the_slow_are_let_go_with_their_offset_and_the_others_miss_nothing(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node, AsyncExitStack() as all_of_them:
        machine = await room.create()
        terminal = await open_terminal(node, machine, argv=("/bin/bash", "-c", _counted(MANY_LINES)))
        watchers = [_Digest() for _ in range(50)]
        slow = watchers[:5]
        for watcher in watchers:
            await all_of_them.enter_async_context(watcher.at(node, machine, terminal, BOT))
        for watcher in watchers:
            await watcher.until_seen(b"ready")
        for watcher in slow:
            watcher.hold()
        await type_in(node, machine, terminal, ANN, "\n")
        expected = _digest_of(MANY_LINES)
        await eventually(lambda: all(each.final is not None for each in watchers[5:]), 200)
        assert {each.digest.hexdigest() for each in watchers[5:]} == {expected}
        for watcher in slow:
            watcher.go_on()
        await eventually(lambda: all(each.is_over for each in slow), 60)
        for watcher in slow:
            assert watcher.said("detached") == [{"offset": watcher.offset, "reason": "slow"}]
            assert watcher.final is None


async def test_a_hundred_idle_terminals_take_little_memory_on_the_host(tmp_path: Path) -> None:
    roomy = MachineSpec(base="host", limits=Limits(memory_mib=1024, disk_mib=256))
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machines = [await room.create(roomy), await room.create(roomy)]
        await open_terminal(node, machines[0])
        gc.collect()
        before = _resident_bytes()
        few = anyio.CapacityLimiter(8)  # a guest that opens fifty at once on a busy host takes too long for the last
        for machine in machines:
            async with anyio.create_task_group() as group:
                for _ in range(IDLE // 2):
                    group.start_soon(_open_and_use, node, machine, few)
        gc.collect()
        each = (_resident_bytes() - before) / IDLE
        assert each < IDLE_LIMIT, f"{each:,.0f} bytes for each idle terminal"


async def _open_and_use(node: Node, machine: Machine, few: anyio.CapacityLimiter) -> None:
    async with few:
        terminal = await open_terminal(node, machine, argv=("/bin/sh", "-c", "seq 1 2000; exec cat"))
    watcher = Watcher()
    async with watcher.at(node, machine, terminal):
        await watcher.until_seen(b"2000\r\n", 60)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
