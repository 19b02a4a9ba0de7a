"""Attaching over a real WebSocket, through a real API and a node's real wire, to programs on real PTYs."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.api.machines import MachineApi, open_machine_api
from integration.api.terminals import WITHIN_S, attached, handshake, open_terminal, principal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_from_an_offset_every_byte_comes_once_and_then_how_it_ended(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="read x; echo got $x; exit 3")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        assert client.connection.subprotocol == "v5.channel.k8s.io"
        await client.until_status("offset")
        first = client.statuses[0]
        assert (first["terminal"], first["offset"], first["cols"], first["rows"]) == (terminal, 0, 80, 24)
        await client.type(b"this\n")
        assert await client.closed() == 1000
    assert client.output == b"this\r\ngot this\r\n"
    assert {"exit": 3, "signal": None} in client.statuses
    assert client.final is not None
    assert client.final["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert client.frames[-1][0] == 3
    shown = (await api.http.get(f"/v1/terminals/{terminal}")).json()
    assert (shown["state"], shown["exit_code"], shown["offset"]) == ("exited", 3, len(client.output))


async def test_without_an_offset_the_present_screen_comes_first_and_then_what_is_new(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo before; cat")
    async with attached(api.api, terminal, mode="type", from_=0) as first:
        await first.until_output(b"before\r\n")
        async with attached(api.api, terminal, mode="observe") as second:
            await second.until(lambda: len(second.statuses) > 1 and "offset" in second.statuses[-1])
            assert second.statuses[0]["screen"] is True
            assert b"before" in second.drawing
            assert second.offset == first.offset
            await first.type(b"after\n")
            await first.until_output(b"after\r\nafter\r\n")
            await second.until_output(b"after\r\nafter\r\n")
    assert second.output == first.output[len(b"before\r\n") :]


async def test_a_character_that_is_cut_between_frames_stays_two_bytes(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo -icanon; printf ready; exec cat")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready")
        await client.type(b"\xe2\x82")
        await client.until_output(b"\xe2\x82")
        await client.type(b"\xac\xff")
        await client.until_output(b"\xac\xff")
    assert client.output == b"ready\xe2\x82\xac\xff"


async def test_the_holders_size_rules_and_all_are_told(api: MachineApi) -> None:
    terminal = await open_terminal(
        api, command="stty -echo; trap 'stty size' WINCH; echo ready; while :; do read; done"
    )
    async with (
        attached(api.api, terminal, mode="type", from_=0) as holder,
        attached(api.api, terminal, token=await principal(api.api, "ann"), from_=0) as observer,
    ):
        await holder.until_output(b"ready")
        await observer.until_output(b"ready")
        await observer.resize(20, 10)
        for cols, rows in ((200, 60), (80, 24), (120, 40)):
            await holder.resize(cols, rows)
            assert await observer.until_status("size") == {"size": {"cols": cols, "rows": rows}}
        await holder.type(b"\n")
        await holder.until_output(b"40 120\r\n")
    assert b"10 20" not in holder.output
    shown = (await api.http.get(f"/v1/terminals/{terminal}")).json()
    assert (shown["cols"], shown["rows"]) == (120, 40)


async def test_one_types_and_the_others_are_refused_until_a_person_takes(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    agent, ann = await principal(api.api, "bot", "agent"), await principal(api.api, "ann")
    async with (
        attached(api.api, terminal, token=agent, mode="type", from_=0) as typist,
        attached(api.api, terminal, token=ann, mode="type", from_=0) as person,
    ):
        await typist.until_output(b"ready")
        await person.until_output(b"ready")
        assert person.statuses[0]["lease"]["name"] == "bot"
        await person.type(b"not yet\n")
        assert (await person.until_status("refused"))["refused"]["lease"]["name"] == "bot"
        taken = await api.http.post(f"/v1/terminals/{terminal}/take", headers={"authorization": f"Bearer {ann}"})
        assert taken.json()["lease"]["name"] == "ann"
        await typist.until(lambda: (typist.statuses[-1].get("lease") or {}).get("name") == "ann")
        await typist.type(b"too late\n")
        assert (await typist.until_status("refused"))["refused"]["lease"]["name"] == "ann"
        await person.type(b"mine\n")
        await person.until_output(b"mine\r\n")
        await typist.until_output(b"mine\r\n")
        names = {each["name"]: each for each in taken.json()["operators"]}
        assert names.keys() == {"bot", "ann"}
        assert names["bot"]["kind"] == "agent"
        assert names["bot"]["client"].startswith("Python/")
    assert typist.output == person.output == b"ready\r\nmine\r\n"


async def test_a_hundred_who_attach_at_once_all_see_the_same(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="seq 1 2000; read x; echo the end")
    async with attached(api.api, terminal, from_=0) as first:
        await first.until(lambda: b"\n2000\r\n" in first.output)  # who sees the screen has not a part of it to come
    outputs: list[bytes] = []
    ready = anyio.Semaphore(0)

    async def watch(number: int) -> None:
        given: dict[str, Any] = {"from_": 0} if number % 2 else {}
        async with attached(api.api, terminal, **given) as client:
            await client.until(lambda: bool(client.statuses) and "screen" not in client.statuses[-1])
            ready.release()
            assert await client.closed() == 1000
            outputs.append(client.output)

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(watch, number)
        for _ in range(100):
            await ready.acquire()
        answer = await api.http.post(f"/v1/terminals/{terminal}/input", json={"data": "\n"})
        assert answer.status_code == 200, answer.text
    assert len(outputs) == 100
    whole = b"".join(b"%d\r\n" % number for number in range(1, 2001)) + b"\r\nthe end\r\n"
    assert {output for output in outputs if len(output) > 100} == {whole}
    assert all(whole.endswith(output) for output in outputs)


async def test_who_does_not_read_is_detached_with_its_offset_and_holds_up_nobody(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="read x; head -c 30000000 /dev/zero | tr '\\0' x; echo the end; read x")
    async with (
        attached(api.api, terminal, mode="observe", from_=0) as slow,
        attached(api.api, terminal, mode="type", from_=0) as quick,
    ):
        await quick.type(b"\n")
        received = 0
        while b"the end" not in quick.output:  # without what would be 30 MB of comparisons
            await quick.next()
            received += len(quick.output)
            quick.output = quick.output[-20:]
        code = await slow.closed()
    assert received > 30_000_000
    assert code == 1013
    detached = slow.statuses[-1]["detached"]
    assert detached == {"offset": slow.offset, "reason": "slow"}
    assert 0 < slow.offset < 30_000_000  # type: ignore[operator]


async def test_a_client_that_takes_nothing_at_all_is_cut_off(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path, stall_s=1.0, ping_s=0.2) as api:
        terminal = await open_terminal(api, command="yes")
        async with await anyio.connect_tcp(*api.api.address) as dead:
            await dead.send(handshake(terminal, "from=0"))
            shown = f"/v1/terminals/{terminal}"

            async def is_watched() -> bool:
                return bool((await api.http.get(shown)).json()["operators"])

            async def is_alone() -> bool:
                return not await is_watched()

            await eventually(is_watched, 20)
            await eventually(is_alone, 40)
        assert (await api.http.get(shown)).json()["state"] == "open"


async def test_a_client_that_is_silent_is_asked_and_then_left(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path, stall_s=3.0, ping_s=0.1) as api:
        terminal = await open_terminal(api, command="sleep 1000")
        async with await anyio.connect_tcp(*api.api.address) as mute, attached(api.api, terminal) as alive:
            await mute.send(handshake(terminal, "from=0"))
            received = b""
            with anyio.fail_after(40), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    received += await mute.receive()
            assert b"\x89\x00" in received  # it was asked
            # The other one answers, and stays.
            await alive.until(lambda: len((alive.statuses[-1:] or [{}])[0].get("operators", [0, 0])) == 1)
            await alive.connection.ping()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ('{"type": "resize"}', 1003),
        ("hello", 1003),
        (b"\x01output", 1003),
        (b"\x03final", 1003),
        (b"\x05{}", 1003),
        (b"\x63", 1003),
        (b"\x04", 1007),
        (b'\x04{"Width": 0, "Height": 1}', 1007),
        (b'\x04{"Width": 99999, "Height": 1}', 1007),
        (b"\x04" + b"[" * 100_000, 1007),
        (b"\xff", 1007),
        (b"\xff\x00\x00", 1007),
        (b"\x00" + bytes(1024 * 1024), 1009),
    ],
)
async def test_what_is_no_frame_ends_the_connection_with_a_code_and_nothing_else(
    api: MachineApi, sent: str | bytes, code: int
) -> None:
    terminal = await open_terminal(api, command="exec cat")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.connection.send(sent)
        assert await client.closed() == code
    shown = (await api.http.get(f"/v1/terminals/{terminal}")).json()
    assert (shown["state"], shown["offset"]) == ("open", 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff\xff\xff",
        b"\x02\x03abc",  # not masked
        b"\x83\x80\0\0\0\0",  # a reserved opcode
        b"\xc2\x80\0\0\0\0",  # a reserved bit
        b"\x80\x80\0\0\0\0",  # a continuation of nothing
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",  # of 9 exabytes
        b"\x89\xfe\x10\x00\0\0\0\0" + bytes(0x1000),  # a long ping
        b"\x81\x82\0\0\0\0\xff\xfe",  # a text that is none
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_websocket_close_it_and_the_server_goes_on(api: MachineApi, raw: bytes) -> None:
    terminal = await open_terminal(api, command="exec cat")
    async with await anyio.connect_tcp(*api.api.address) as client:
        await client.send(handshake(terminal, "from=0&mode=type"))
        received = b""
        with anyio.fail_after(WITHIN_S), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while b"\r\n\r\n" not in received:
                received += await client.receive()
            await client.send(raw)
            while True:
                received += await client.receive()
    assert received.startswith(b"HTTP/1.1 101 ")
    assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["offset"] == 0


async def test_messages_in_pieces_and_texts_of_a_channel_are_taken(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        await client.until_output(b"ready\r\n")
        await client.connection.send([b"\x00", b"in ", b"", b"pieces\n"])
        await client.connection.send("\x00as text é\n")
        await client.connection.send(b"\x00")
        await client.connection.send(b"")
        await client.until_output("as text é\r\n".encode())
    assert client.output == "ready\r\nin pieces\r\nas text é\r\n".encode()
