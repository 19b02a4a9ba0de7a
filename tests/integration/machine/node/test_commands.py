"""Commands run once, whoever dies meanwhile; what they print is kept, bounded and said."""

from pathlib import Path

import anyio
import pytest

from eventually import eventually
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import ConflictError, EffectId, OutliveError, SystemClock
from outlive.machine.caller import MachineCaller
from outlive.machine.door import ExecRequest
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node
from outlive.machine.node.outputs import INLINE_LIMIT
from outlive.machine.status import Effect, Machine

pytestmark = pytest.mark.anyio


async def _count(room: MachineRoom, machine: Machine) -> str:
    return (await room.exec(machine.id, "cat /workspace/count 2>/dev/null | wc -l")).stdout.strip()


async def test_the_same_effect_id_never_runs_twice_and_answers_the_same(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        effect = EffectId("eff-once")
        first = await room.exec(machine.id, "echo run >> count; echo done", effect_id=effect)
        again = await room.exec(machine.id, "echo run >> count; echo done", effect_id=effect)
        assert first == again
        assert await _count(room, machine) == "1"
        with pytest.raises(ConflictError, match="eff-once"):
            await room.exec(machine.id, "echo other", effect_id=effect)


async def test_many_who_ask_for_one_effect_at_once_get_the_one_result(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        found: list[Effect] = []

        async def ask() -> None:
            found.append(await room.exec(machine.id, "echo run >> count; sleep 0.2", effect_id="eff-many"))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask)
        assert len({effect.model_dump_json() for effect in found}) == 1
        assert await _count(room, machine) == "1"


async def test_a_command_goes_on_without_its_node_and_is_found_again(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
            command = "echo run >> count; echo before; while [ ! -e go ]; do sleep 0.05; done; echo after"
            begun = await room.exec(machine.id, command, effect_id="eff-long", background=True)
            assert begun.state == "started"
        async with room.node():
            await room.exec(machine.id, "touch go")
            done = await room.exec(machine.id, command, effect_id="eff-long")
            assert (done.state, done.exit_code, done.stdout) == ("finished", 0, "before\nafter\n")
            assert await _count(room, machine) == "1"


async def test_a_running_command_sleeps_through_a_hibernation(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        command = "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after"
        await room.exec(machine.id, command, effect_id="eff-sleeper", background=True)
        await room.keeper.do(machine.id, "hibernate")
        await room.exec(machine.id, "touch go")  # wakes it
        done = await room.exec(machine.id, command, effect_id="eff-sleeper")
        assert (done.state, done.stdout) == ("finished", "before\nafter\n")


async def test_what_is_printed_beyond_the_inline_bound_is_stored_whole_and_beyond_the_last_is_cut(
    tmp_path: Path,
) -> None:
    spec = SMALL.model_copy(update={"limits": SMALL.limits.model_copy(update={"output_mib": 2})})
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create(spec)
        some = await room.exec(machine.id, "head -c 1000000 /dev/zero | tr '\\0' x")
        assert (len(some.stdout), some.truncated, some.cut_bytes) == (INLINE_LIMIT, True, 0)
        assert some.stdout_blob is not None
        assert await room.objects.get(some.stdout_blob) == b"x" * 1_000_000
        flood = await room.exec(machine.id, "head -c 9000000 /dev/zero | tr '\\0' y")
        assert flood.truncated
        assert flood.stdout_blob is not None
        kept = len(await room.objects.get(flood.stdout_blob))
        assert kept + flood.cut_bytes == 9_000_000
        assert kept <= 2 * 1024 * 1024


async def test_a_timeout_ends_the_whole_group_and_says_so(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        done = await room.exec(machine.id, "sleep 1000 & echo $! > pid; wait", timeout_s=0.5)
        assert done.state == "timeout"
        alive = await room.exec(machine.id, "kill -0 $(cat pid) 2>/dev/null && echo alive || echo gone")
        assert alive.stdout == "gone\n"


async def test_stdin_environment_directory_and_user_are_as_asked(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        done = await room.exec(machine.id, "cat; echo $WHO; pwd; id -un", stdin="in\n", env={"WHO": "me"}, cwd="/tmp")
        assert done.stdout == "in\nme\n/tmp\nagent\n"
        root = await room.exec(machine.id, "id -u", user="root")
        assert root.stdout == "0\n"


async def test_what_follows_a_command_sees_its_output_as_it_comes(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        request = ExecRequest(
            effect_id=EffectId("eff-follow"), command="echo one; while [ ! -e go ]; do sleep 0.02; done; echo two"
        )
        seen = b""
        async for piece in NodeDoor(node).follow(machine.id, machine.generation, request):
            if isinstance(piece, Effect):
                assert piece.stdout == "one\ntwo\n"
                break
            seen += piece.data
            if seen == b"one\n":
                await room.exec(machine.id, "touch go")
        assert seen == b"one\ntwo\n"


async def test_one_who_follows_a_command_later_sees_what_it_has_printed_before(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        request = ExecRequest(
            effect_id=EffectId("eff-late"),
            command="echo one; echo wrong >&2; while [ ! -e go ]; do sleep 0.02; done; echo two",
        )

        async def printed_both() -> bool:
            run = node.runs.find(machine.id, request.effect_id)
            return run is not None and [each.data for each in run.so_far()] == [b"one\n", b"wrong\n"]

        async with anyio.create_task_group() as group:
            group.start_soon(NodeDoor(node).exec, machine.id, machine.generation, request)
            await eventually(printed_both)
            seen = {"stdout": b"", "stderr": b""}
            async for piece in NodeDoor(node).follow(machine.id, machine.generation, request):
                if isinstance(piece, Effect):
                    break
                assert piece.offset == len(seen[piece.stream])
                seen[piece.stream] += piece.data
                if seen == {"stdout": b"one\n", "stderr": b"wrong\n"}:
                    await room.exec(machine.id, "touch go")
        assert seen == {"stdout": b"one\ntwo\n", "stderr": b"wrong\n"}


async def test_a_machine_that_dies_with_a_command_says_lost_and_comes_back_from_its_disk(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        await room.exec(machine.id, "echo kept > /workspace/file")
        found: list[Effect] = []

        async def run() -> None:
            found.append(await room.exec(machine.id, "sleep 1000", effect_id="eff-doomed"))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await eventually(lambda: node.runs.find(machine.id, EffectId("eff-doomed")) is not None)
            resident = node.residents.get(machine.id, machine.generation)
            await node.adoption.lose(resident, "its sandbox ended")
        assert [effect.state for effect in found] == ["lost"]
        after = await room.exec(machine.id, "cat /workspace/file")
        assert after.stdout == "kept\n"
        kinds = [event.kind for _, event in await room.records.machines.events(machine.id, after=0, limit=50)]
        assert kinds[-2:] == ["woken", "rebooted"]


async def test_a_command_whose_machine_is_deleted_is_lost_and_what_was_over_is_told_after_that(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        caller = MachineCaller(room.keeper, room.records.effects, NodeDoor(node), SystemClock())

        async def ask(effect: str, command: str, *, background: bool = False) -> Effect:
            request = ExecRequest(effect_id=EffectId(effect), command=command, background=background)
            return await caller.exec(machine.id, request)

        over = await ask("eff-over", "echo done")
        await ask("eff-behind", "sleep 1000", background=True)
        found: list[Effect] = []

        async def run() -> None:
            found.append(await ask("eff-doomed", "sleep 1000"))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await eventually(lambda: node.runs.find(machine.id, EffectId("eff-doomed")) is not None)
            await room.keeper.do(machine.id, "delete")
        assert [effect.state for effect in found] == ["lost"]
        assert await ask("eff-over", "echo done") == over
        left = await room.records.effects.list(machine.id, after=0, limit=10)
        assert [(each.id, each.state) for each in left][1:] == [("eff-behind", "lost"), ("eff-doomed", "lost")]
        for known, code in (("eff-over", "effect.other_request"), ("eff-new", "machine.deleted")):
            with pytest.raises(OutliveError) as refused:
                await ask(known, "touch another")
            assert refused.value.code == code


async def test_stdin_reaches_its_command_whole_and_once_when_the_node_is_restarted(tmp_path: Path) -> None:
    given = "x" * 900_000
    command = "while [ ! -e go ]; do sleep 0.05; done; cat | wc -c"
    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            asked = ExecRequest(effect_id=EffectId("eff-fed"), command=command, stdin=given)
            async with anyio.create_task_group() as group:
                group.start_soon(NodeDoor(node).exec, machine.id, machine.generation, asked)

                def is_fed() -> bool:
                    run = node.runs.find(machine.id, asked.effect_id)
                    return run is not None and run.running is not None

                await eventually(is_fed)
                group.cancel_scope.cancel()
        async with room.node():
            await room.exec(machine.id, "touch go")
            done = await room.exec(machine.id, command, effect_id="eff-fed", stdin=given)
            assert (done.state, done.stdout.strip()) == ("finished", "900000")


async def test_a_command_that_runs_in_the_background_is_typed_to_across_a_restart_and_a_hibernation(
    tmp_path: Path,
) -> None:
    effect = EffectId("eff-typed")

    async def write(node: Node, data: bytes, offset: int, *, end: bool = False) -> int:
        record = await room.keeper.ensure_awake(machine.id)
        return await NodeDoor(node).write_stdin(machine.id, record.generation, effect, data, end=end, offset=offset)

    async with open_machine_room(tmp_path) as room:
        async with room.node() as node:
            machine = await room.create()
            await room.exec(machine.id, "cat", effect_id=effect, background=True)
            assert await write(node, b"one\n", 0) == 4
        async with room.node() as node:
            assert await write(node, b"one\ntwo\n", 0) == 8  # what came before is left out
            with pytest.raises(ConflictError, match="8 bytes of stdin have come"):
                await write(node, b"four\n", 9)
            await room.keeper.do(machine.id, "hibernate")
            assert await write(node, b"three\n", 8, end=True) == 14
            done = await room.exec(machine.id, "cat", effect_id=effect)
            assert (done.state, done.stdout) == ("finished", "one\ntwo\nthree\n")
