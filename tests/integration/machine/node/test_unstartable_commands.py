"""What cannot be started has an end like any command, and the same id gives the same answer."""

from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from machine_rooms import SMALL, MachineRoom, open_machine_room
from outlive.base import ConflictError, EffectId, SystemClock
from outlive.machine.caller import MachineCaller
from outlive.machine.door import ExecRequest, Output, digest_of
from outlive.machine.node.door import NodeDoor
from outlive.machine.status import Effect, Machine

pytestmark = pytest.mark.anyio

_ABSENT = ("no-such-program",)
# What stands in the workspace, and is no program that can be run.
_MAKE = """
echo text > plain; echo text > no-format; chmod 755 no-format; ln -s loop loop
mkdir shut; chmod 0 shut; printf '#!/no/such/interpreter\n' > orphan; chmod 755 orphan
"""
_FILL = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        time.sleep(0.01)
"""
_TOLD: dict[str, tuple[dict[str, Any], int, str]] = {
    "no such program": ({"argv": _ABSENT}, 127, "No such file or directory"),
    "no such program by its path": ({"argv": ("/no/such",)}, 127, "No such file or directory"),
    "no such interpreter": ({"argv": ("./orphan",)}, 127, "No such file or directory"),
    "below what is no directory": ({"argv": ("./plain/x",)}, 127, "Not a directory"),
    "not executable": ({"argv": ("./plain",)}, 126, "Permission denied"),
    "a directory": ({"argv": ("./shut",)}, 126, "Permission denied"),
    "of no known format": ({"argv": ("./no-format",)}, 126, "Exec format error"),
    "a loop of links": ({"argv": ("./loop",)}, 126, "Too many levels of symbolic links"),
    "a name that is too long": ({"argv": ("x" * 100_000,)}, 126, "File name too long"),
    "no such cwd": ({"command": "true", "cwd": "/no/such"}, 126, "'/no/such' cannot be entered: No such file"),
    "a cwd that is a file": ({"command": "true", "cwd": "plain"}, 126, "cannot be entered: Not a directory"),
    "a cwd that is shut": ({"command": "true", "cwd": "shut"}, 126, "cannot be entered: Permission denied"),
}


async def _exec(room: MachineRoom, machine: Machine, effect: str, **fields: object) -> Effect:
    """As the API does it, which asks again where it is told to."""
    request = ExecRequest.model_validate({"effect_id": effect, **fields})
    door = NodeDoor(room.node_of(await room.keeper.ensure_awake(machine.id)))
    return await MachineCaller(room.keeper, room.records.effects, door, SystemClock()).exec(machine.id, request)


async def _assert_all_over(room: MachineRoom, machine: Machine) -> None:
    found = await room.records.effects.list(machine.id, after=0, limit=100)
    assert {each.state for each in found} == {"finished"}


async def test_what_cannot_be_started_is_finished_as_in_a_shell_and_says_why(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create()
        await room.exec(machine.id, _MAKE)
        for number, (case, (fields, exit_code, why)) in enumerate(_TOLD.items()):
            done = await _exec(room, machine, f"eff-{number}", **fields)
            assert (done.state, done.exit_code, done.stdout, done.truncated) == ("finished", exit_code, "", False), case
            assert why in done.stderr, case
            assert done.ended_at is not None
            assert done == await room.records.effects.find(machine.id, done.id), "and the journal has it"
        await _assert_all_over(room, machine)


async def test_it_never_runs_later_though_it_could_by_then(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
            first = await _exec(room, machine, "eff-absent", argv=_ABSENT)
            await room.exec(machine.id, f"echo 'echo run >> ran' > /usr/bin/{_ABSENT[0]}", user="root")
            await room.exec(machine.id, f"sed -i '1i #!/bin/sh' /usr/bin/{_ABSENT[0]}", user="root")
            await room.exec(machine.id, f"chmod 755 /usr/bin/{_ABSENT[0]}", user="root")
            assert await _exec(room, machine, "eff-absent", argv=_ABSENT) == first
        async with room.node():
            assert await _exec(room, machine, "eff-absent", argv=_ABSENT) == first
            await room.keeper.do(machine.id, "hibernate")
            assert await _exec(room, machine, "eff-absent", argv=_ABSENT) == first
            with pytest.raises(ConflictError, match="eff-absent"):
                await _exec(room, machine, "eff-absent", argv=("other",))
            assert (await room.exec(machine.id, "cat ran 2>&1")).exit_code == 1, "it never ran"
            again = await _exec(room, machine, "eff-present", argv=_ABSENT)
            assert (again.exit_code, (await room.exec(machine.id, "cat ran")).stdout) == (0, "run\n")
            await _assert_all_over(room, machine)


async def test_one_whose_node_died_before_its_end_was_recorded_is_refused_again_and_ends(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room:
        async with room.node():
            machine = await room.create()
            assert machine.node is not None
        # All that such a node leaves behind: the guest has started nothing.
        request = ExecRequest(effect_id=EffectId("eff-cut-off"), argv=_ABSENT)
        await room.records.effects.begin(
            machine.id,
            request.effect_id,
            node=machine.node,
            generation=machine.generation,
            digest=digest_of(request),
            at=SystemClock().now(),
        )
        async with room.node():
            done = await _exec(room, machine, "eff-cut-off", argv=_ABSENT)
            assert (done.state, done.exit_code, done.n) == ("finished", 127, 1)


async def test_one_in_the_background_is_told_of_at_once_and_takes_no_stdin(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        done = await _exec(room, machine, "eff-behind", argv=_ABSENT, background=True)
        assert (done.state, done.exit_code) == ("finished", 127)
        assert await _exec(room, machine, "eff-behind", argv=_ABSENT, background=True) == done
        assert await _exec(room, machine, "eff-behind", argv=_ABSENT) == done
        with pytest.raises(ConflictError, match="eff-behind"):
            await NodeDoor(node).write_stdin(machine.id, machine.generation, done.id, b"x", end=False)


async def test_who_follows_one_is_told_why_on_its_stderr(tmp_path: Path) -> None:
    async with open_machine_room(tmp_path) as room, room.node() as node:
        machine = await room.create()
        request = ExecRequest(effect_id=EffectId("eff-followed"), command="true", cwd="/no/such")
        told = [each async for each in NodeDoor(node).follow(machine.id, machine.generation, request)]
        *pieces, done = told
        assert isinstance(done, Effect)
        assert pieces == [Output("stderr", 0, done.stderr.encode())]


async def test_a_machine_that_has_no_room_for_a_process_says_so_and_leaves_nothing_begun(tmp_path: Path) -> None:
    limits = SMALL.limits.model_copy(update={"processes": 16})
    async with open_machine_room(tmp_path) as room, room.node():
        machine = await room.create(SMALL.model_copy(update={"limits": limits}))
        await _exec(room, machine, "eff-filling", argv=("python3", "-c", _FILL), background=True)
        tried: list[Effect] = []

        async def is_full() -> bool:
            tried.append(await _exec(room, machine, f"eff-{len(tried)}", argv=("true",)))
            return tried[-1].exit_code != 0

        await eventually(is_full)
        full = tried[-1]
        assert (full.state, full.exit_code) == ("finished", 126)
        assert "did not start: Resource temporarily unavailable" in full.stderr
        assert await _exec(room, machine, full.id, argv=("true",)) == full
        found = await room.records.effects.list(machine.id, after=0, limit=100)
        assert [each.id for each in found if not each.is_over] == ["eff-filling"]
