"""The files of a machine, through its guest. Paths are resolved in the machine, never here.

A path is text (`os.fsdecode`) or bytes; absolute, or relative to the machine's workspace.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

from outlive.base import ExhaustedError, InvalidError, UnavailableError
from outlive.guest.wire import Words
from outlive.machine.guest_link import answers, facts
from outlive.machine.guest_link.channel import CALL_S, Asked, Channel
from outlive.machine.guest_link.facts import FileFacts, FilePage
from outlive.machine.guest_link.stream import GuestStream

WALK_S = 300.0  # for what may touch a whole tree


class FileContent:
    """A file that is being read: iterate over its bytes."""

    def __init__(self, found: FileFacts, stream: GuestStream) -> None:
        self.facts = found
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._stream.receive()) is not None:
            yield data
        if self._stream.was_cut:
            raise UnavailableError("file.unreadable", "The machine could not read the file to its end.")


class GuestFiles:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def stat(
        self, path: str | bytes, *, follow: bool = False, user: str | None = None, timeout_s: float = CALL_S
    ) -> FileFacts:
        words = _words(path, user) | {"follow": follow}
        return self._channel.read(await self._channel.call("file_stat", words, timeout_s), facts.read_file)

    async def list(
        self,
        path: str | bytes,
        *,
        after: str | None = None,
        limit: int = 1000,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> FilePage:
        """A page of a directory: at most `limit` entries, and fewer if their names are long. None, if what was there
        went meanwhile."""
        words = _words(path, user) | {"after": after or "", "limit": limit}
        said = await self._channel.call("file_list", words, timeout_s)
        return self._channel.read(said, lambda answer: facts.read_file_page(answer, after or ""))

    @asynccontextmanager
    async def read(
        self,
        path: str | bytes,
        *,
        offset: int = 0,
        limit: int | None = None,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> AsyncIterator[FileContent]:
        """The bytes of a regular file from `offset`. The reader sets the pace."""
        words = _words(path, user) | {"offset": offset, "limit": limit}
        stream = self._channel.new_stream(is_reader=True)
        try:
            async with self._channel.asking("file_read", words, {"content": stream}) as asked:
                said = await self._channel.answer_of(asked, "file_read", timeout_s)
            yield FileContent(self._channel.read(said, facts.read_file), stream)
        finally:
            stream.reset()

    async def read_bytes(self, path: str | bytes, *, most: int, user: str | None = None) -> bytes:
        """A small file whole; `file.too_big` if it has more than `most` bytes."""
        found = bytearray()
        async with self.read(path, limit=most + 1, user=user) as content:
            async for data in content:
                found += data
                if len(found) > most:  # also a guest that sends more than it was asked for
                    raise ExhaustedError("file.too_big", f"The file has more than {most} bytes.")
        return bytes(found)

    async def write(
        self,
        path: str | bytes,
        content: bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = False,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> int:
        """Put a file in its place, whole or not at all; says its size. `timeout_s` is for the machine's part after."""
        words = _words(path, user) | {"mode": mode, "parents": parents}
        stream = self._channel.new_stream()
        try:
            async with self._channel.asking("file_write", words, {"content": stream}) as asked:
                await _send(asked, stream, content)
                said = await self._channel.answer_of(asked, "file_write", timeout_s)
        finally:
            stream.reset()
        return self._channel.read(said, lambda answer: answers.count(answer, "size"))

    async def delete(
        self,
        path: str | bytes,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        user: str | None = None,
        timeout_s: float = WALK_S,
    ) -> None:
        words = _words(path, user) | {"recursive": recursive, "missing_ok": missing_ok}
        await self._channel.call("file_delete", words, timeout_s)

    async def mkdir(
        self,
        path: str | bytes,
        *,
        mode: int = 0o755,
        parents: bool = False,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> None:
        await self._channel.call("file_mkdir", _words(path, user) | {"mode": mode, "parents": parents}, timeout_s)

    async def move(
        self,
        path: str | bytes,
        to: str | bytes,
        *,
        replace: bool = False,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> None:
        """Inside one filesystem of the machine: between its disk and a tmpfs `mv` in a command does it."""
        await self._channel.call("file_move", _words(path, user) | {"to": _text(to), "replace": replace}, timeout_s)


async def _send(asked: Asked, stream: GuestStream, content: bytes | AsyncIterable[bytes]) -> None:
    try:
        if isinstance(content, bytes):
            await stream.send(content)
        else:
            async for data in content:
                await stream.send(data)
    except UnavailableError:
        if not asked.is_answered:  # else the answer says why it wanted no more
            raise
        return
    stream.end()


def _text(path: str | bytes) -> str:
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise InvalidError("file.path", "A path is not empty and holds no NUL.")
    return text


def _words(path: str | bytes, user: str | None) -> Words:
    return {"path": _text(path)} if user is None else {"path": _text(path), "user": user}
