"""What a machine refuses has the names of the reference: in a real sandbox, and in what stands in for one in tests."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.api.machines import open_machine_api
from integration.api.problems import assert_problem
from integration.api.sandboxed import SandboxedApi, open_sandboxed_api
from machine_rooms import SMALL
from outlive.base import ConflictError, EffectId, InvalidError, NotFoundError, OutliveError, UnavailableError
from outlive.machine.door import ExecRequest
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.status import Machine
from outlive.machine.terminal.door import OpenTerminal

pytestmark = pytest.mark.anyio

_MAKE = "mkdir -p folder/in; echo text > plain; mkfifo pipe; ln -s gone dangling"
# Method, place, status, code: what any machine says.
_ALIKE = [
    ("GET", "files/workspace/none", 404, "file.unknown"),
    ("GET", "files/workspace/none?stat=1", 404, "file.unknown"),
    ("GET", "files/workspace/none?list=1", 404, "file.unknown"),
    ("GET", "files/workspace/plain/below", 404, "file.unknown"),
    ("GET", "files/workspace/dangling", 404, "file.unknown"),
    ("DELETE", "files/workspace/none", 404, "file.unknown"),
    ("GET", "files/workspace/folder", 409, "file.not_a_file"),
    ("GET", "files/workspace/pipe", 409, "file.not_a_file"),
    ("GET", "files/workspace/plain?list=1", 409, "file.not_a_directory"),
    ("PUT", "files/workspace/plain/below", 409, "file.not_a_directory"),
    ("PUT", "files/workspace/plain/below/that", 409, "file.not_a_directory"),
    ("PUT", "files/workspace/folder", 409, "file.is_a_directory"),
    ("DELETE", "files/workspace/folder", 409, "file.is_a_directory"),
    ("GET", "files/workspace/%2e%2e/etc", 422, "file.path"),
    ("GET", "ports/1/", 503, "port.refused"),
    ("GET", "effects/none", 404, "effect.unknown"),
    ("POST", "effects/done/signal", 409, "effect.over"),
    ("POST", "effects/done/stdin", 409, "effect.over"),
]
# What only a machine with a user, with limits and with an interpreter of its own says.
_OF_SANDBOXES = [
    ("GET", "files/srv/closed/secret", 403, "file.denied"),
    ("GET", "files/workspace/shut", 403, "file.denied"),
    ("GET", "files/srv/closed?list=1", 403, "file.denied"),
    ("PUT", "files/etc/mine", 403, "file.denied"),
    ("DELETE", "files/etc/passwd", 403, "file.denied"),
    ("GET", "files/workspace/loop", 422, "machine.bad_request"),
]


@dataclass(frozen=True)
class Room:
    http: httpx.AsyncClient
    place: str  # of a machine

    async def exec(self, command: str, **fields: Any) -> dict[str, Any]:
        answer = await self.http.post(f"{self.place}/exec", json={"command": command, **fields})
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    async def refusal(self, method: str, target: str) -> tuple[int, str]:
        given: dict[str, Any] = {"content": b"x"} if method == "PUT" else {}
        if method == "POST":
            given = {"json": {"signal": 9} if target.endswith("signal") else {"text": "x"}}
        url = httpx.URL(str(self.http.base_url)).copy_with(raw_path=f"{self.place}/{target}".encode())
        answer = await self.http.request(method, url, **given)
        return answer.status_code, assert_problem(answer, answer.status_code)["code"]


@pytest.fixture(params=["sandbox", "stand-in"])
async def room(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Room]:
    if request.param == "sandbox":
        async with open_sandboxed_api(tmp_path) as api:
            yield Room(api.http, f"/v1/machines/{(await api.create()).id}")
    else:
        async with open_machine_api(tmp_path) as local:
            yield Room(local.http, f"/v1/machines/{await local.create()}")


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SandboxedApi]:
    async with open_sandboxed_api(tmp_path) as api:
        yield api


async def test_every_refusal_has_the_name_and_the_status_of_the_reference_in_a_sandbox_and_out_of_one(
    room: Room,
) -> None:
    await room.exec(_MAKE, effect_id="done")
    for method, target, status, code in _ALIKE:
        assert await room.refusal(method, target) == (status, code), (method, target)
    assert (await room.exec("true", cwd="/no/such"))["exit_code"] == 126
    missing = await room.http.post(f"{room.place}/exec", json={"argv": ["no-such-program"], "effect_id": "absent"})
    assert (missing.json()["outcome"], missing.json()["exit_code"]) == ("finished", 127)
    assert (await room.http.get(f"{room.place}/effects/absent")).json() == missing.json()
    assert (await room.http.delete(f"{room.place}/files/workspace/folder?recursive=true")).status_code == 204


async def test_what_a_user_may_not_do_is_denied_by_its_name(api: SandboxedApi) -> None:
    room = Room(api.http, f"/v1/machines/{(await api.create()).id}")
    await room.exec("mkdir -m 700 /srv/closed; echo secret > /srv/closed/secret", user="root")
    await room.exec("echo text > shut; chmod 0 shut; ln -s loop loop")
    for method, target, status, code in _OF_SANDBOXES:
        assert await room.refusal(method, target) == (status, code), (method, target)


async def test_what_does_not_fit_the_disk_is_refused_and_what_was_there_stays(api: SandboxedApi) -> None:
    room = Room(api.http, f"/v1/machines/{(await api.create()).id}")
    await room.exec("echo old > file; head -c 400M /dev/zero > big; sync")
    big = await api.http.put(f"{room.place}/files/workspace/file", content=bytes(1024 * 1024))
    assert assert_problem(big, 429)["code"] == "machine.disk_full"
    assert (await room.exec("rm big; cat file"))["stdout"] == "old\n"


async def test_a_read_only_machine_says_so_by_its_name(api: SandboxedApi) -> None:
    made = await api.create(SMALL.model_copy(update={"is_read_only": True, "user": "root"}))
    room = Room(api.http, f"/v1/machines/{made.id}")
    assert await room.refusal("PUT", "files/etc/mine") == (403, "file.read_only")
    assert await room.refusal("DELETE", "files/etc/passwd") == (403, "file.read_only")


async def test_a_place_in_use_is_no_machine_that_is_busy(api: SandboxedApi) -> None:
    """A guest's own word for it was that of a machine on the move, which is asked for a minute."""
    made = await api.create(SMALL.model_copy(update={"user": "root"}))
    room = Room(api.http, f"/v1/machines/{made.id}")
    assert await room.refusal("DELETE", "files/var/tmp?recursive=true") == (409, "file.busy")


async def test_a_command_that_is_over_is_told_by_its_name_whoever_asks_the_node(api: SandboxedApi) -> None:
    made = await api.create()
    door = NodeDoor(api.room.node_of(made))
    for effect, argv in (("eff-over", ("true",)), ("eff-absent", ("no-such-program",))):
        await door.exec(made.id, made.generation, ExecRequest(effect_id=EffectId(effect), argv=argv))
        with pytest.raises(ConflictError) as over:
            await door.signal(made.id, made.generation, EffectId(effect), 9)
        assert over.value.code == "effect.over"
        with pytest.raises(ConflictError) as none:
            await door.write_stdin(made.id, made.generation, EffectId(effect), b"x", end=True)
        assert none.value.code == "effect.no_stdin"
    with pytest.raises(NotFoundError) as unknown:
        await door.signal(made.id, made.generation, EffectId("eff-never"), 9)
    assert unknown.value.code == "effect.unknown"


async def test_a_port_where_nobody_listens_and_a_file_that_is_none_are_told_by_the_node_itself(
    api: SandboxedApi,
) -> None:
    made = await api.create()
    door = NodeDoor(api.room.node_of(made))
    with pytest.raises(UnavailableError) as refused:
        await door.connect(made.id, made.generation, 1)
    assert refused.value.code == "port.refused"
    with pytest.raises(NotFoundError) as unknown:
        await door.stat_file(made.id, made.generation, "/no/such")
    assert unknown.value.code == "file.unknown"


async def test_a_terminal_whose_program_cannot_be_started_says_what_is_wrong_and_no_machine_is_missing(
    api: SandboxedApi,
) -> None:
    made = await api.create()
    await api.room.exec(made.id, "echo text > plain")
    told: dict[str, dict[str, Any]] = {
        "machine.no_such_program": {"argv": ("no-such-program",)},
        "machine.not_started": {"argv": ("./plain",)},
        "machine.no_directory": {"command": "true", "cwd": "/no/such"},
    }
    for code, fields in told.items():
        refused = await _refused_terminal(api, made, fields)
        assert (refused.code, type(refused)) == (code, InvalidError)


async def _refused_terminal(api: SandboxedApi, made: Machine, fields: dict[str, Any]) -> OutliveError:
    request = OpenTerminal.model_validate({"terminal": f"term_{'1' * 32}", "owner": made.owner, **fields})
    with pytest.raises(OutliveError) as refused:
        await NodeTerminalDoor(api.room.node_of(made)).open(made.id, made.generation, request)
    return refused.value
