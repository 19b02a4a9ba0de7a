"""A client's WebSocket outlives the node's attachment, the machine's sleep and, by its offset, the API."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import serve
from integration.api.terminals import attached, open_terminal, principal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_no_byte_is_lost_or_repeated_when_the_node_restarts_in_the_middle(api: MachineApi) -> None:
    counting = "for n in $(seq 1 300); do echo line $n; sleep 0.005; done"
    terminal = await open_terminal(api, command=f"read x; {counting}")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.type(b"\n")
        for _ in range(3):
            size = len(client.output)
            await client.until(lambda size=size: len(client.output) > size + 200)  # type: ignore[misc]
            api.node.terminals.cut()
        assert await client.closed() == 1000
    assert client.output == b"\r\n" + b"".join(b"line %d\r\n" % number for number in range(1, 301))
    assert client.final == {"metadata": {}, "status": "Success"}


async def test_what_is_typed_while_the_node_is_away_is_typed_once_when_it_is_back(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready\r\n")
        api.node.terminals.is_away = True
        api.node.terminals.cut()
        assert await client.until_status("machine") == {"machine": "away"}
        await client.type(b"one\n")
        await client.type(b"two\n")
        api.node.terminals.is_away = False
        await client.until_output(b"two\r\n")
        await client.type(b"three\n")
        await client.until_output(b"three\r\n")
    assert client.output == b"ready\r\none\r\ntwo\r\nthree\r\n"
    assert {"machine": "running"} in client.statuses


async def test_too_much_typed_while_the_node_is_away_is_refused(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat >/dev/null")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready\r\n")
        api.node.terminals.is_away = True
        api.node.terminals.cut()
        await client.until_status("machine", "away")
        for _ in range(17):
            await client.type(b"x" * 4095 + b"\n")
        refused = await client.until_status("refused")
        assert refused["refused"] == {"lease": None, "reason": "away"}
        api.node.terminals.is_away = False
        await client.until_status("machine", "running")


async def test_a_machine_that_hibernates_tells_its_clients_and_they_go_on_after_the_wake(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; echo ready; exec cat")
    ann = await principal(api.api, "ann")
    async with (
        attached(api.api, terminal, mode="type", from_=0) as typist,
        attached(api.api, terminal, token=ann, from_=0) as watcher,
    ):
        await typist.until_output(b"ready\r\n")  # until then what is typed is echoed
        await typist.type(b"before\n")
        await typist.until_output(b"before\r\n")
        await watcher.until_output(b"before\r\n")
        await api.do(machine, "hibernate")
        assert await typist.until_status("machine") == {"machine": "hibernated"}
        assert await watcher.until_status("machine") == {"machine": "hibernated"}
        await watcher.type(b"who watches wakes nobody")
        assert (await watcher.until_status("refused"))["refused"]["reason"] == "hibernated"
        assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "hibernated"
        await api.do(machine, "wake")
        assert await typist.until_status("machine") == {"machine": "running"}
        await typist.type(b"after\n")
        await typist.until_output(b"after\r\n")
        await watcher.until_output(b"after\r\n")
    assert typist.output == watcher.output == b"ready\r\nbefore\r\nafter\r\n"


async def test_who_types_wakes_the_machine_and_what_was_typed_gets_there(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; echo ready; exec cat")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready\r\n")
        await api.do(machine, "hibernate")
        await client.until_status("machine", "hibernated")
        await client.type(b"wake up\n")
        await client.until_output(b"wake up\r\n")
    assert client.output == b"ready\r\nwake up\r\n"
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "running"


async def test_who_yields_does_not_hold_it_again_by_being_cut_off(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="stty -echo; echo ready; exec cat")
    bob = {"authorization": f"Bearer {await principal(api.api, 'bob')}"}
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready\r\n")
        assert (await api.http.post(f"/v1/terminals/{terminal}/yield")).json()["lease"] is None
        await api.do(machine, "hibernate")
        await client.until_status("machine", "hibernated")
        await api.do(machine, "wake")
        await client.until_status("machine", "running")
        assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["lease"] is None
        answer = await api.http.post(f"/v1/terminals/{terminal}/input", json={"data": "by bob\n"}, headers=bob)
        assert answer.status_code == 200, answer.text
        await client.until_output(b"by bob\r\n")


async def test_attaching_wakes_a_machine_that_sleeps(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="echo ready; exec cat")
    await api.do(machine, "hibernate")
    async with attached(api.api, terminal, from_=0) as client:
        await client.until_output(b"ready\r\n")
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "running"


async def test_an_api_that_ends_says_so_and_the_client_goes_on_elsewhere(api: MachineApi) -> None:
    lines = "for n in $(seq {} {}); do echo line $n; sleep 0.005; done; read x"
    terminal = await open_terminal(api, command=f"stty -echo; {lines.format(1, 100)}; {lines.format(101, 200)}")
    parts = replace(api.api.parts, closing=anyio.Event())
    async with serve(parts) as other, attached(other, terminal, from_=0) as first:
        await first.until_output(b"line 20\r\n")
        parts.closing.set()
        assert await first.closed() == 1012
    async with attached(api.api, terminal, mode="type", from_=first.offset) as second:
        await second.type(b"\n")
        await second.until_output(b"line 200\r\n")
    assert first.output + second.output == b"".join(b"line %d\r\n" % number for number in range(1, 201))


async def test_a_token_that_is_revoked_ends_its_attachments(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path, recheck_s=0.1) as api:
        terminal = await open_terminal(api, command="echo ready; exec cat")
        ann = await principal(api.api, "ann")
        [id] = [each["id"] for each in (await api.http.get("/v1/principals")).json()["items"] if each["name"] == "ann"]
        async with attached(api.api, terminal, token=ann, from_=0) as client:
            await client.until_output(b"ready")
            assert (await api.http.delete(f"/v1/principals/{id}")).status_code == 204
            assert await client.closed() == 1008


async def test_a_machine_that_is_deleted_ends_it_as_a_failure(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="echo ready; exec cat")
    async with attached(api.api, terminal, from_=0) as client:
        await client.until_output(b"ready")
        assert (await api.http.delete(f"/v1/machines/{machine}")).status_code == 200
        api.node.terminals.cut()
        assert await client.closed() == 1000
    assert client.final is not None
    assert client.final["status"] == "Failure"


async def test_a_terminal_that_has_ended_is_still_shown_whole_and_wakes_nothing(api: MachineApi) -> None:
    machine = await api.create()
    terminal = await open_terminal(api, machine, command="seq 1 5000; exit 7")

    async def has_ended() -> bool:
        return bool((await api.http.get(f"/v1/terminals/{terminal}")).json()["state"] == "exited")

    await eventually(has_ended, 40)
    await api.do(machine, "hibernate")
    whole = b"".join(b"%d\r\n" % number for number in range(1, 5001))
    for start in (0, 1, 10_000, len(whole)):
        async with attached(api.api, terminal, mode="type", from_=start) as client:
            await client.type(b"nobody hears it")
            assert await client.closed() == 1000
        assert client.output == whole[start:]
        assert client.final is not None
        assert client.final["details"]["causes"][0]["message"] == "7"
    async with attached(api.api, terminal) as client:
        assert await client.closed() == 1000
    assert b"5000" in client.drawing
    assert client.offset == len(whole)
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "hibernated"
