"""The SDK's machines over a real API: the same things as over HTTP, and commands that run once whatever is cut off."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import TOKEN
from integration.api.test_egress import decided
from integration.client.proxy import WHOLE, Fate, open_proxy
from outlive.base import ConflictError, InvalidError, NotFoundError
from outlive.client import AsyncClient, AsyncMachine, Client, ExecResult, Piece, machines
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.environments import new_environment
from outlive.testing.machine_records import AT

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_the_life_of_a_machine_in_the_async_client(api: MachineApi) -> None:
    async with AsyncClient(api.api.url, TOKEN) as client:
        machine = await client.machines.create(name="one")
        assert (machine.state, machine.name, machine.environment) == ("running", "one", "default")
        assert (await machine.exec(["echo", "a b"])).stdout == "a b\n"
        assert (await machine.pause()).state == "paused"
        with pytest.raises(ConflictError):
            await machine.exec("true")
        await machine.resume()
        assert (await machine.checkpoint()).startswith("ckpt_")
        assert len({each.id for each in await machine.fork(2)}) == 2
        assert (await machine.hibernate()).state == "hibernated"
        assert (await machine.wake()).generation == 2
        assert len(await client.machines.list(state="running")) == 3
        assert len(await client.machines.list(limit=2)) == 2
        await machine.delete()
        assert machine.state == "deleted"
        with pytest.raises(NotFoundError):
            await client.machines.get(machine.id)
        with pytest.raises(NotFoundError):
            await client.machines.get("../conversations")


async def test_what_a_machine_reached_is_read_page_by_page_async_and_sync(
    api: MachineApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "HISTORY_PAGE", 2)
    machine = await api.create()
    await api.node.egress.store([decided(machine, number) for number in range(1, 6)])
    async with AsyncClient(api.api.url, TOKEN) as client:
        found = await client.machines.egress(machine, limit=None)
        assert [(each.n, each.host, each.verdict) for each in found] == [
            (n, "a.example", "allowed") for n in range(1, 6)
        ]
        assert [each.n for each in await (await client.machines.get(machine)).egress(after=1, limit=3)] == [2, 3, 4]
        with pytest.raises(NotFoundError):
            await client.machines.egress("../conversations")

    def use() -> None:
        with Client(api.api.url, TOKEN) as client:
            assert client.machines.egress(machine, limit=None) == found
            assert client.machines.get(machine).egress(after=4) == found[4:]

    await anyio.to_thread.run_sync(use)


async def test_environments_are_listed_whole_however_many_there_are(api: MachineApi) -> None:
    many = 1_001  # more than one page holds
    records = api.node.records.environments
    for number in range(many):
        await records.put(new_environment(EnvironmentDefinition(name=f"e{number:04}"), AT))
    async with AsyncClient(api.api.url, TOKEN) as client:
        names = [each.name for each in await client.environments.list()]
    assert names == sorted(["debian", "default", "host", *(f"e{number:04}" for number in range(many))])


async def test_the_sync_client_does_the_same(api: MachineApi) -> None:
    def use() -> None:
        with Client(api.api.url, TOKEN) as client:
            machine = client.machines.create()
            assert machine.exec("cat; exit 4", stdin=None).exit_code == 4
            assert machine.write_file("notes.txt", b"hello", mode=0o600) == 5
            assert machine.read_file("/workspace/notes.txt") == b"hello"
            assert [(each.name, each.mode) for each in machine.list_files()] == [("notes.txt", 0o600)]
            assert machine.stat_file("notes.txt").kind == "file"
            machine.delete_file("notes.txt")
            with pytest.raises(NotFoundError):
                machine.read_file("notes.txt")
            with pytest.raises(InvalidError):
                machine.read_file("../etc/passwd")
            told = list(machine.stream("echo out; exit 2", effect_id="e1"))
            assert told[0] == Piece("stdout", 0, b"out\n")
            assert isinstance(told[1], ExecResult)
            assert told[1].exit_code == 2
            assert machine.effect("e1") == told[1]
            assert client.machines.list()[0].id == machine.id

    await anyio.to_thread.run_sync(use)


async def _through(client: AsyncClient, api: MachineApi, machine: str) -> AsyncMachine:
    """A machine whose first call is the first of `client`."""
    async with AsyncClient(api.api.url, TOKEN) as direct:
        return AsyncMachine(client._transport, (await direct.machines.get(machine)).facts)


@pytest.mark.parametrize("bytes_first", [0, 40, 260])
async def test_a_command_whose_answer_is_cut_off_ran_once_and_is_answered(api: MachineApi, bytes_first: int) -> None:
    machine = await api.create()
    async with (
        open_proxy(api.api.address[1], lambda number: Fate(bytes_first) if number == 1 else WHOLE) as proxy,
        AsyncClient(proxy.url, TOKEN) as client,
    ):
        done = await (await _through(client, api, machine)).exec("echo x >> f; wc -l < f")
        assert (done.stdout, proxy.cuts) == ("1\n", 1)


async def test_a_followed_command_that_is_cut_off_shows_nothing_twice(api: MachineApi) -> None:
    machine = await api.create()
    async with (
        open_proxy(api.api.address[1], lambda number: Fate(330) if number == 1 else WHOLE) as proxy,
        AsyncClient(proxy.url, TOKEN) as client,
    ):
        followed = await _through(client, api, machine)
        printed, result = b"", None
        async for told in followed.stream("seq 1 2000; echo x >> count"):
            if isinstance(told, Piece):
                assert told.offset == len(printed)
                printed += told.data
            else:
                result = told
        assert printed == "".join(f"{number}\n" for number in range(1, 2001)).encode()
        assert result is not None
        assert result.exit_code == 0
        assert proxy.cuts == 1
    assert (await api.exec(machine, "wc -l < count"))["stdout"] == "1\n"


async def test_what_a_server_has_left_out_is_shown_in_its_place_when_the_result_has_it(api: MachineApi) -> None:
    machine = await api.create()
    told = [Piece("stdout", 0, b"one\n"), Piece("stdout", 8, b"three\n"), Piece("stderr", 0, b"!")]
    result = {"effect_id": "e", "outcome": "finished", "exit_code": 0, "stdout": "one\ntwo\nthree\n", "stderr": "!"}
    lines = [
        {"stream": each.stream, "offset": each.offset, "data": base64.b64encode(each.data).decode()} for each in told
    ]
    body = "".join(
        json.dumps(line) + "\n" for line in [*lines, {"result": {**result, "truncated": False, "cut_bytes": 0}}]
    )

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
            await stream.send((head + body).encode())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with AsyncClient(f"http://127.0.0.1:{port}", TOKEN) as client:
            followed = await _through(client, api, machine)
            pieces = [each async for each in followed.stream("seq 3") if isinstance(each, Piece)]
        group.cancel_scope.cancel()
    assert pieces == [told[0], told[2], Piece("stdout", 4, b"two\nthree\n")]
