"""Terminals on a node: every byte once and in order for everybody, through restarts of the node and sleep."""

import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eventually import eventually
from integration.machine.node.watching import ANN, BOT, SHELL, Watcher, act, journal_of, open_terminal, recorded
from machine_rooms import open_machine_room
from outlive.base import ConflictError, DeniedError, NotFoundError, OutliveError, new_machine_id, new_terminal_id
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.terminal.door import Close, OpenTerminal, Signal
from outlive.machine.terminal.journal import Mark

pytestmark = pytest.mark.anyio


async def test_what_is_typed_and_printed_goes_on_under_one_count_through_a_restart_of_the_node(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        watcher = Watcher()
        async with room.node() as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo fir''st\n")
                await watcher.until_seen(b"first\r\n")
        async with room.node() as node:
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo sec''ond; exit 3\n")
                await eventually(lambda: watcher.final is not None, 30)
            assert watcher.seen.count(b"first\r\n") == watcher.seen.count(b"second\r\n") == 1
            assert {"exit": 3, "signal": None} in watcher.words
            record = await room.records.terminals.get(terminal)
            assert (record.state, record.exit_code) == ("exited", 3)

            async def is_stored() -> bool:
                return (await room.records.terminals.get(terminal)).recorded_to == watcher.offset

            await eventually(is_stored, 30)
            assert await recorded(room, node, terminal) == watcher.seen


async def test_a_terminal_sleeps_with_its_machine_and_goes_on_under_its_id_on_another_node(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, AsyncExitStack() as nodes:
        node = await nodes.enter_async_context(room.node("a"))
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        watcher = Watcher()
        async with watcher.at(node, machine, terminal, ANN, "type"):
            await watcher.send(
                b"kept=in-memory; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); read -t 0.05; echo n$i; done\n"
            )
            await watcher.until_seen(b"n3\r\n")
            hibernated = await room.keeper.do(machine.id, "hibernate")
            assert hibernated.state == "hibernated", room.settler.failed
            await eventually(lambda: watcher.is_over, 30)
        assert watcher.words[-1] == {"machine": "hibernated"}
        assert watcher.final is None
        record = await room.records.terminals.get(terminal)
        assert (record.state, record.reserved_to) == ("open", record.recorded_to)
        assert record.recorded_to >= (watcher.offset or 0)
        await nodes.aclose()

        async with room.node("b") as node:
            woken = await room.keeper.do(machine.id, "wake")
            before = len(watcher.seen)
            async with watcher.at(node, woken, terminal, ANN, "type"):
                await eventually(lambda: len(watcher.seen) > before + 50, 30)
                await watcher.send(b"\x03")
                # What it throws away is thrown away when its prompt comes behind the last line.
                await eventually(lambda: b"$ " in watcher.seen.rpartition(b"\r\nn")[2], 30)
                await watcher.send(b'echo "<$kept>"\n')
                await watcher.until_seen(b"<in-memory>")
            assert watcher.said("gap") == watcher.said("seam") == []
            counted = [int(n) for n in re.findall(rb"n(\d+)\r\n", watcher.seen)]
            assert counted == list(range(1, len(counted) + 1)), "not one line is missing or repeated"
            whole = Watcher()
            async with whole.at(node, woken, terminal):
                # The shell may have printed its prompt after the first one left.
                await eventually(lambda: (whole.offset or 0) >= (watcher.offset or 0), 30)
            assert whole.seen[: len(watcher.seen)] == watcher.seen, "what is older comes from the recording"
            fresh = Watcher(None)
            async with fresh.at(node, woken, terminal):
                await eventually(lambda: b"<in-memory>" in fresh.drawn, 30)


async def test_after_a_roll_back_offsets_go_on_and_the_seam_is_told(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        watcher = Watcher()
        async with room.node("a") as node:
            machine = await room.create()
            terminal = await open_terminal(node, machine)
            async with watcher.at(node, machine, terminal, ANN, "type"):
                await watcher.send(b"echo be''fore\n")
                await watcher.until_seen(b"before\r\n")
                await room.keeper.checkpoint(machine.id)
                await watcher.send(b"echo un''done; gone=1\n")
                await watcher.until_seen(b"undone\r\n")
        seen_to = watcher.offset
        async with room.node("b") as node:  # the host of the first is lost, with all that was on it alone
            await room.settler.settle(machine.id)
            woken = await room.keeper.ensure_awake(machine.id)
            async with watcher.at(node, woken, terminal, ANN, "type"):
                await watcher.send(b"echo after-$gone-\n")
                await watcher.until_seen(b"after--")
            [seam] = watcher.said("seam")
            assert seam["from"] <= seen_to <= seam["at"]
            assert watcher.said("gap") == []
            again = Watcher()
            async with again.at(node, woken, terminal):
                await eventually(lambda: again.offset == watcher.offset, 30)
            assert b"before\r\n" in again.seen
            assert again.seen.endswith(watcher.seen[-20:])
            fresh = Watcher(None)
            async with fresh.at(node, woken, terminal):
                await eventually(lambda: b"after--" in fresh.drawn, 30)
            assert b"before" in fresh.drawn
            assert b"undone" not in fresh.drawn, "the screen shows what is, not what was rolled back"


async def test_a_terminal_of_a_machine_that_had_to_be_rebooted_is_lost_and_what_it_printed_stays(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        watcher = Watcher()
        async with watcher.at(node, machine, terminal, ANN, "type"):
            await watcher.send(b"echo be''fore\n")
            await watcher.until_seen(b"before\r\n")
            await node.adoption.lose(node.residents.get(machine.id, machine.generation), "a test ended it")
            await eventually(lambda: watcher.is_over, 30)
        assert watcher.words[-1] == {"machine": "away"}
        woken = await room.keeper.ensure_awake(machine.id)
        with pytest.raises(ConflictError, match="is lost"):
            async with watcher.at(node, woken, terminal):
                pass
        record = await room.records.terminals.get(terminal)
        assert (record.state, record.lease, record.recorded_to) == ("lost", None, watcher.offset)
        assert await recorded(room, node, terminal) == watcher.seen


async def test_a_fork_has_its_parents_terminals_under_ids_of_its_own(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        parent = Watcher()
        async with parent.at(node, machine, terminal, ANN, "type"):
            await parent.send(b"kept=both; echo sha''red\n")
            await parent.until_seen(b"shared\r\n")
            [child] = await room.keeper.fork(machine.id, [new_machine_id()], owner=ANN.id)
            born = await room.keeper.ensure_awake(child.id)
            await parent.send(b"echo in-$kept-par''ent\n")
            await parent.until_seen(b"in-both-parent\r\n")

        async def has_its_own() -> bool:
            return len(await room.records.terminals.list(born.id)) == 1

        await eventually(has_its_own, 30)
        [own] = await room.records.terminals.list(born.id)
        assert own.id != terminal
        assert own.origin == terminal
        forked = Watcher()
        async with forked.at(node, born, own.id, BOT, "type"):
            await forked.send(b"echo in-$kept-chi''ld\n")
            await forked.until_seen(b"in-both-child\r\n")
        assert b"shared\r\n" in forked.seen, "what is older is read from the parent"
        assert b"parent\r\n" not in forked.seen
        assert b"child\r\n" not in parent.seen
        assert forked.said("gap") == forked.said("seam") == []


async def test_a_terminal_is_opened_once_resized_by_who_holds_it_and_closed_for_all(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        door = NodeTerminalDoor(node)
        again = OpenTerminal(terminal=terminal, argv=("/bin/false",), owner=ANN.id)
        assert (await door.open(machine.id, machine.generation, again)).terminal.command == SHELL
        holder, other = Watcher(), Watcher()
        async with (
            holder.at(node, machine, terminal, ANN, "type"),
            other.at(node, machine, terminal, BOT, "type"),
        ):
            await other.resize(20, 10)
            await holder.resize(132, 43)
            await eventually(lambda: other.said("size") == [{"cols": 132, "rows": 43}], 30)
            await holder.send(b"stty size\n")
            await holder.until_seen(b"43 132\r\n")
            await holder.send(b"sh -c 'echo run''ning; exec sleep 1000'\n")
            await holder.until_seen(b"running\r\n")  # by now it is in the foreground
            await act(node, machine, terminal, ANN, Signal(number=2))
            await holder.send(b"echo $?\n")
            await holder.until_seen(b"130\r\n")
            with pytest.raises(ConflictError, match="holds this terminal"):
                await act(node, machine, terminal, BOT, Signal(number=2))
            with pytest.raises(DeniedError):
                await act(node, machine, terminal, BOT, Close())
            [sent] = [each for each in journal_of(node, terminal) if isinstance(each, Mark) and each.kind == "signal"]
            assert sent.value == {"number": 2, "operator": {"id": ANN.id, "name": "ann", "kind": "person"}}
            view = await door.view(machine.id, machine.generation, terminal)
            assert {present.name for present in view.operators} == {"ann", "bot"}
            await act(node, machine, terminal, ANN, Close())
            await eventually(lambda: holder.is_over and other.is_over, 30)
        assert holder.final is not None
        assert holder.final["status"] == "Failure"
        assert (await room.records.terminals.get(terminal)).state == "closed"

        async def is_ended() -> bool:
            shown = await room.exec(machine.id, "ps -eo args | grep -c '[b]ash --norc' || true")
            return shown.stdout == "0\n"

        await eventually(is_ended, 30)
        with pytest.raises(NotFoundError):
            await door.view(machine.id, machine.generation, new_terminal_id())


async def test_without_the_object_store_a_terminal_goes_on_its_machine_stays_awake_and_nothing_is_missing_after(
    tmp_path: Path,
) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        terminal = await open_terminal(node, machine)
        door, watcher = NodeTerminalDoor(node), Watcher()
        store, aside = tmp_path / "objects", tmp_path / "aside"
        await door.flush(machine.id, machine.generation, terminal)
        store.rename(aside)
        store.touch()  # no folder can be made here
        async with watcher.at(node, machine, terminal, ANN, "type"):
            await watcher.send(b"seq 1 20000\n")
            await watcher.until_seen(b"20000\r\n")
            with pytest.raises(OutliveError):
                await door.flush(machine.id, machine.generation, terminal)
            with pytest.raises(OutliveError):
                await node.saving.hibernate(node.residents.get(machine.id, machine.generation))
            await watcher.send(b"echo still-he''re\n")
            await watcher.until_seen(b"still-here\r\n")
            store.unlink()
            aside.rename(store)
            await door.flush(machine.id, machine.generation, terminal)
            hibernated = await room.keeper.do(machine.id, "hibernate")
            assert hibernated.state == "hibernated", room.settler.failed
            await eventually(lambda: watcher.is_over, 30)
        assert watcher.said("gap") == []
        stored = await recorded(room, node, terminal)
        assert stored.startswith(watcher.seen)
