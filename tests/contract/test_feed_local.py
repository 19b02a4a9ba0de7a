"""The feed over the local broker keeps what every feed promises, and the broker keeps its door."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from eventually import eventually
from outlive.base import ConflictError, DeniedError, new_conversation_id, new_step_id
from outlive.conversation.backends.broker import CUT_OFF_AT, open_broker
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.signals import FRAME_LIMIT, frame
from outlive.conversation.events import Event
from outlive.conversation.feed import Lagged
from outlive.testing.feed import FeedContract, KnownHeads, make_delta, make_event, receive_until

pytestmark = pytest.mark.anyio

_BROKER = """
import sys, anyio
from pathlib import Path
from outlive.conversation.backends.broker import open_broker
async def main():
    async with open_broker(Path(sys.argv[1])):
        print("ready", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


class LocalPlace:
    kind: Literal["local", "redis"] = "local"

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._process: anyio.abc.Process | None = None

    async def start(self) -> None:
        self._process = await anyio.open_process([sys.executable, "-c", _BROKER, self.address], stderr=None)
        assert self._process.stdout is not None
        with anyio.fail_after(10):
            assert (await self._process.stdout.receive()).startswith(b"ready")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
            await self._process.aclose()
            self._process = None


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[LocalPlace]:
    place = LocalPlace(tmp_path / "feed.sock")
    try:
        await place.start()
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await place.kill()


class TestLocalFeed(FeedContract):
    pass


def _names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def _connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(5)
    client.connect(str(path))
    return client


def _is_cut_off(client: socket.socket) -> bool:
    client.settimeout(5)
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (FRAME_LIMIT + 1).to_bytes(4, "big"),
        frame(b""),
        frame(b"\xff\xfe"),
        frame(b"[" * 100_000),
        frame(b"null"),
        frame(b'["?","conv_0"]'),
        frame(b'["s","../../etc"]'),
        frame(b'["p","CONV",7]'),
        frame(b'["p","CONV",[["e",1]]]'),
        frame(b'["p","CONV",[["g","9"]]]'),
        frame(b'["p","CONV",[["d","1",0,null,"s",1,"model.delta","t",null,null,"x","y"]]]'),
        frame(b'["p","CONV",[["d",1,0,null,"s",1,"step.rewound","t",null,null,"x","y"]]]'),
    ],
)
async def test_garbage_cuts_off_whoever_sent_it_and_nobody_else(tmp_path: Path, garbage: bytes) -> None:
    path, conversation = tmp_path / "feed.sock", new_conversation_id()
    async with (
        open_broker(path),
        open_local_feed(path, KnownHeads()) as feed,
        feed.subscribe(conversation) as subscription,
    ):
        with _connect(path) as client:
            client.sendall(garbage.replace(b"CONV", conversation.encode()))
            assert await anyio.to_thread.run_sync(_is_cut_off, client)
        feed.publish(conversation, [make_event(1)])
        heard = await receive_until(subscription, bool)
        assert [type(one).__name__ for one in heard] == ["Event"]


async def test_a_second_broker_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    path, conversation = tmp_path / "feed.sock", new_conversation_id()
    async with open_broker(path), open_local_feed(path, KnownHeads()) as feed:
        with pytest.raises(ConflictError):
            async with open_broker(path):
                pass
        async with feed.subscribe(conversation) as subscription:
            feed.publish(conversation, [make_event(1)])
            await receive_until(subscription, bool)
    assert _names_in(tmp_path) == []
    async with open_broker(path):
        pass
    assert _names_in(tmp_path) == []


async def test_a_dead_brokers_socket_is_taken_over(place: LocalPlace) -> None:
    path = Path(place.address)
    await place.kill()
    assert _names_in(path.parent) == [path.name]
    conversation = new_conversation_id()
    async with (
        open_broker(path),
        open_local_feed(path, KnownHeads()) as feed,
        feed.subscribe(conversation) as subscription,
    ):
        feed.publish(conversation, [make_event(1)])
        await receive_until(subscription, bool)
    assert _names_in(path.parent) == []


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "feed.sock"
    path.write_text("precious")
    with pytest.raises(ConflictError):
        async with open_broker(path):
            pass
    assert path.read_text() == "precious"


async def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    with pytest.raises(DeniedError):
        async with open_broker(tmp_path / "feed.sock"):
            pass
    async with open_broker(tmp_path / "new" / "feed.sock"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_is_cut_off_even_if_the_door_stands_open(tmp_path: Path) -> None:
    path = tmp_path / "feed.sock"
    code = f"s = socket.socket(socket.AF_UNIX); s.connect({path.name!r}); print(s.recv(1))"
    async with open_broker(path):
        os.chmod(tmp_path, 0o755)
        os.chmod(path, 0o666)
        descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # The directories above are closed to that user, so it starts inside.
            done = await anyio.to_thread.run_sync(
                lambda: subprocess.run(
                    ["/usr/bin/env", "python3", "-c", f"import os, socket; os.setgid(65534); os.setuid(65534); {code}"],
                    cwd=f"/proc/self/fd/{descriptor}",
                    pass_fds=(descriptor,),
                    capture_output=True,
                    timeout=20,
                    check=False,
                )
            )
        finally:
            os.close(descriptor)
    assert done.stdout == b"b''\n", done.stderr


async def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    path = tmp_path / ("deep" * 30) / "feed.sock"
    conversation = new_conversation_id()
    async with (
        open_broker(path),
        open_local_feed(path, KnownHeads()) as feed,
        feed.subscribe(conversation) as subscription,
    ):
        feed.publish(conversation, [make_event(1)])
        heard = await receive_until(subscription, bool)
        assert Lagged() not in heard
    assert _names_in(path.parent) == []


async def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    path, conversation, step = tmp_path / "feed.sock", new_conversation_id(), new_step_id()
    async with (
        open_broker(path) as broker,
        open_local_feed(path, KnownHeads()) as feed,
        feed.subscribe(conversation) as subscription,
    ):
        with _connect(path) as deaf:
            deaf.sendall(frame(f'["s","{conversation}"]'.encode()))
            await eventually(lambda: len(broker.peers) == 2)
            text, offset = "x" * 60_000, 0
            while len(broker.peers) == 2:
                assert offset < 8 * CUT_OFF_AT
                feed.publish(conversation, [make_delta(step, 1, offset, text)])
                offset += len(text)
                await receive_until(subscription, bool)
            feed.publish(conversation, [make_event(2)])
            await receive_until(subscription, lambda heard: any(isinstance(one, Event) for one in heard))


async def test_much_retained_output_cuts_nobody_off_when_all_is_asked_for_at_once(tmp_path: Path) -> None:
    path = tmp_path / "feed.sock"
    conversations = [new_conversation_id() for _ in range(60)]
    text = "\x01" * 60_000  # six bytes each on the wire: 86 MB in all
    async with open_broker(path) as broker, open_local_feed(path, KnownHeads()) as writer:
        for conversation in conversations:
            step = new_step_id()
            writer.publish(conversation, [make_delta(step, 1, at * len(text), text) for at in range(4)])
            await writer.flush()
        with _connect(path) as client:
            client.sendall(b"".join(frame(f'["s","{one}"]'.encode()) for one in conversations))
            received = await anyio.to_thread.run_sync(_read, client, 60 * 4 * 60_000 * 6)
            assert received >= 60 * 4 * 60_000 * 6
            assert len(broker.peers) == 2


def _read(client: socket.socket, size: int) -> int:
    received = 0
    while received < size:
        data = client.recv(1024 * 1024)
        if not data:
            break
        received += len(data)
    return received
