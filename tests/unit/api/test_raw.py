"""A connection that was taken over: once its end was sent, whoever sends more is told that it is gone."""

import asyncio
import socket

import anyio
import pytest

from outlive.api.raw import RawStream

pytestmark = pytest.mark.anyio


async def test_what_is_sent_after_the_end_is_refused_and_what_comes_is_still_heard() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        stream = RawStream(transport)
        await stream.send(b"last")
        await stream.send_eof()
        for late in (b"more", b""):
            with pytest.raises(anyio.BrokenResourceError):
                stream.send_now(late)
        theirs.sendall(b"heard")
        assert await stream.receive() == b"heard"
        await stream.aclose()
        assert theirs.recv(100) == b"last"
        assert theirs.recv(100) == b""
