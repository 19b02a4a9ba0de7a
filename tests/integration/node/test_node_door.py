"""The door over HTTP does what the node's own door does: commands, files, raw connections, and every refusal."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import pytest

from descriptors import no_descriptors_left
from eventually import eventually
from integration.node.local import LocalNode, open_local
from outlive.base import (
    ConflictError,
    EffectId,
    FencedError,
    NotFoundError,
    UnavailableError,
    new_effect_id,
    new_machine_id,
)
from outlive.machine.backends.node_http import dial
from outlive.machine.door import ExecRequest, Output
from outlive.machine.status import Effect

pytestmark = pytest.mark.anyio


@pytest.fixture
async def node(tmp_path: Path, anyio_backend: str) -> AsyncIterator[LocalNode]:
    async with open_local(tmp_path) as node:
        yield node


def _asked(command: str, **given: object) -> ExecRequest:
    return ExecRequest.model_validate({"effect_id": new_effect_id(), "command": command, **given})


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_command_runs_and_its_result_comes_back_whole(node: LocalNode) -> None:
    made = await node.create()
    effect = await node.door.exec(made.id, made.generation, _asked("echo out; echo err >&2; exit 3"))
    assert (effect.state, effect.exit_code, effect.stdout, effect.stderr) == ("finished", 3, "out\n", "err\n")


async def test_a_command_asked_for_twice_runs_once(node: LocalNode) -> None:
    made = await node.create()
    request = _asked("echo x >> count; cat count")
    first = await node.door.exec(made.id, made.generation, request)
    assert await node.door.exec(made.id, made.generation, request) == first
    assert await node.door.effect(made.id, made.generation, request.effect_id) == first


async def test_following_a_command_ends_with_its_result(node: LocalNode) -> None:
    made = await node.create()
    told = [each async for each in node.door.follow(made.id, made.generation, _asked("printf '\\377\\n'"))]
    assert told[0] == Output("stdout", 0, b"\xff\n")
    assert isinstance(told[1], Effect)
    assert len(told) == 2


async def test_an_older_generation_is_refused_without_asking_the_node(node: LocalNode) -> None:
    made = await node.create()
    with pytest.raises(FencedError) as refused:
        await node.door.exec(made.id, made.generation + 1, _asked("true"))
    assert refused.value.code == "machine.fenced"


async def test_a_refusal_of_the_node_keeps_its_kind_and_code(node: LocalNode) -> None:
    made = await node.create()
    with pytest.raises(NotFoundError) as refused:
        await node.door.stat_file(made.id, made.generation, "/no/such")
    assert refused.value.code == "file.unknown"
    assert "/no/such" in refused.value.message
    with pytest.raises(NotFoundError, match="knows no effect"):
        await node.door.effect(made.id, made.generation, EffectId("nothing"))
    with pytest.raises(NotFoundError):
        await node.door.processes(new_machine_id(), 1)


async def test_a_call_without_the_token_of_the_node_does_nothing_and_is_not_the_callers_fault(tmp_path: Path) -> None:
    async with open_local(tmp_path, token="guessed") as node:
        made = await node.create()
        with pytest.raises(UnavailableError) as refused:  # not `unauthenticated`: the caller's own token is right
            await node.door.exec(made.id, made.generation, _asked("touch done"))
        assert refused.value.code == "node.token"
        assert "the same on all hosts" in refused.value.message
        with pytest.raises(UnavailableError, match="the same on all hosts"):
            await node.door.connect(made.id, made.generation, 80)
        assert list((node.machines.folder(made.id) / "workspace").iterdir()) == []


async def test_both_sockets_are_for_their_owner_alone(node: LocalNode) -> None:
    for path in (node.address.path, node.address.splice.path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_files_go_both_ways_in_pieces_and_any_name_is_kept(node: LocalNode) -> None:
    made = await node.create()
    path = "/workspace/deep/na me\n%2e?&#é"
    big = bytes(range(256)) * 4096
    assert await node.door.write_file(made.id, made.generation, path, _pieces(big, b"", big), mode=0o600) == 2 * len(
        big
    )
    entry = await node.door.stat_file(made.id, made.generation, path)
    assert (entry.size, entry.mode, entry.kind) == (2 * len(big), 0o600, "file")
    async with node.door.read_file(made.id, made.generation, path, offset=len(big) - 1, limit=3) as pieces:
        assert b"".join([piece async for piece in pieces]) == b"\xff\x00\x01"
    async with node.door.read_file(made.id, made.generation, path) as pieces:
        assert b"".join([piece async for piece in pieces]) == big + big
    [listed] = await node.door.list_files(made.id, made.generation, "/workspace/deep")
    assert listed.name == "na me\n%2e?&#é"
    await node.door.delete_file(made.id, made.generation, path)
    assert await node.door.list_files(made.id, made.generation, "/workspace/deep") == []


@pytest.mark.parametrize("verb", ["list_files", "processes"])
async def test_a_list_whose_caller_has_left_is_given_up(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    made = await node.create()
    asked, given_up = anyio.Event(), anyio.Event()

    async def never(*_: object) -> None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            given_up.set()

    monkeypatch.setattr(node.machines, verb, never)
    async with anyio.create_task_group() as group:
        group.start_soon(getattr(node.door, verb), made.id, made.generation, *(["/"] if verb == "list_files" else []))
        await asked.wait()
        assert not given_up.is_set()
        group.cancel_scope.cancel()
    with anyio.fail_after(10):
        await given_up.wait()


async def test_half_a_file_never_takes_the_place_of_a_whole_one(node: LocalNode) -> None:
    made = await node.create()
    await node.door.write_file(made.id, made.generation, "/workspace/kept", _pieces(b"old"))

    async def breaking() -> AsyncIterator[bytes]:
        yield b"new"
        raise UnavailableError("source.gone", "The source is gone.")

    with pytest.raises(UnavailableError) as failed:
        await node.door.write_file(made.id, made.generation, "/workspace/kept", breaking())
    assert failed.value.code == "source.gone"

    folder = node.machines.folder(made.id) / "workspace"

    async def settled() -> bool:
        return [each.name for each in folder.iterdir()] == ["kept"]

    await eventually(settled)
    assert (folder / "kept").read_bytes() == b"old"


async def test_a_file_that_is_refused_before_its_end_holds_up_no_call_after_it(node: LocalNode) -> None:
    made = await node.create()
    (node.machines.folder(made.id) / "workspace" / "folder").mkdir()

    async def without_end() -> AsyncIterator[bytes]:
        yield b"x" * 65_536
        await anyio.sleep_forever()

    for _ in range(3):
        with anyio.fail_after(20), pytest.raises(ConflictError) as refused:
            await node.door.write_file(made.id, made.generation, "/workspace/folder", without_end())
        assert refused.value.code == "file.is_a_directory"
        with anyio.fail_after(20):  # what was to come of the file is not taken for what comes next
            assert (await node.door.exec(made.id, made.generation, _asked("echo well"))).stdout == "well\n"


async def test_a_background_command_takes_stdin_and_signals(node: LocalNode) -> None:
    made = await node.create()
    request = _asked("read line; echo $line > heard; sleep 60", background=True)
    started = await node.door.exec(made.id, made.generation, request)
    assert started.state == "started"
    await node.door.write_stdin(made.id, made.generation, request.effect_id, b"hello\n", end=False)
    heard = node.machines.folder(made.id) / "workspace" / "heard"

    async def is_heard() -> bool:
        return heard.exists() and heard.read_text() == "hello\n"

    await eventually(is_heard)
    [process] = await node.door.processes(made.id, made.generation)
    assert process.effect == request.effect_id
    await node.door.signal(made.id, made.generation, request.effect_id, 9)

    async def is_over() -> bool:
        return not await node.door.processes(made.id, made.generation)

    await eventually(is_over)


async def test_a_raw_connection_carries_bytes_both_ways_and_keeps_half_closes(node: LocalNode) -> None:
    made = await node.create()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"welcome ")  # before anything was asked
            heard = b"".join([piece async for piece in stream])
            await stream.send(str(len(heard)).encode())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with await node.door.connect(made.id, made.generation, port) as stream:
            for _ in range(64):
                await stream.send(bytes(16_384))
            await stream.send_eof()
            with anyio.fail_after(20):
                assert b"".join([piece async for piece in stream]) == b"welcome 1048576"
        group.cancel_scope.cancel()


async def test_a_port_where_nobody_listens_is_refused(node: LocalNode) -> None:
    made = await node.create()
    with pytest.raises(UnavailableError) as refused:
        await node.door.connect(made.id, made.generation, 1)
    assert refused.value.code == "port.refused"


@pytest.mark.parametrize("line", [b"{}\n", b"not json\n", b"x" * 10_000, b"\n"])
async def test_a_raw_connection_that_asks_for_nothing_sensible_is_ended(node: LocalNode, line: bytes) -> None:
    async with await dial(node.address.splice, None) as stream:
        with anyio.fail_after(20):
            try:
                await stream.send(line)
                said = b"".join([piece async for piece in stream])
            except anyio.BrokenResourceError:
                said = b""
    assert said == b"" or b"request.malformed" in said


async def test_a_raw_connection_that_comes_when_no_descriptor_is_left_is_answered_later(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    path = node.address.splice.path
    assert path is not None
    with socket.socket(socket.AF_UNIX) as dialled:
        dialled.setblocking(False)
        with no_descriptors_left():
            dialled.connect(path)
            dialled.sendall(b"{}\n")
            await eventually(lambda: "cannot be accepted" in caplog.text)
        with anyio.fail_after(10):
            assert b"request.malformed" in await asyncio.get_running_loop().sock_recv(dialled, 10_000)


async def test_a_kept_connection_that_was_closed_is_replaced(tmp_path: Path) -> None:
    async with open_local(tmp_path) as node:
        made = await node.create()
        await node.door.ports(made.id, made.generation)
        [kept] = node.door.calls._pool._idle[node.address]
        await kept._stream.send_eof()  # so that the node hangs up
        with anyio.fail_after(20), pytest.raises(anyio.EndOfStream):
            await kept._stream.receive()
        assert await node.door.ports(made.id, made.generation) == []


async def test_a_node_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    async with open_local(tmp_path) as node:
        made = await node.create()
        os.unlink(node.address.path)
        with pytest.raises(UnavailableError) as failed:
            await node.door.ports(made.id, made.generation)
        assert failed.value.code == "node.away"
