"""The content of a file on a stream, to the host and from it."""

import os
from contextlib import suppress

from outlive.guest.link import Ask
from outlive.guest.loop import Loop
from outlive.guest.refusal import RefusalError, refusal_of
from outlive.guest.stream import Stream
from outlive.guest.users import User, acting_as

_READS_AT_ONCE = 4


class FileReader:
    """Sends a file from `offset`, `size` bytes of it or all. Ends with END, or with RESET when it cannot be read."""

    def __init__(self, loop: Loop, stream: Stream, descriptor: int, offset: int, size: int | None) -> None:
        self._loop = loop
        self._stream = stream
        self._descriptor = descriptor
        self._offset = offset
        self._end = None if size is None else offset + size
        stream.on_room = self._push
        stream.on_gone = self._close
        loop.soon(self._push)

    def _push(self) -> None:
        for _ in range(_READS_AT_ONCE):
            if self._descriptor < 0:
                return
            room = self._stream.room()
            if self._end is not None:
                room = min(room, self._end - self._offset)
            if room == 0 and self._offset != self._end:
                return  # comes back when there is room
            try:
                data = os.pread(self._descriptor, room, self._offset) if room else b""
            except OSError:
                self._close()
                self._stream.reset()
                return
            if not data:
                self._close()
                self._stream.end()
                return
            self._offset += self._stream.send(data)
        self._loop.soon(self._push)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class FileWriter:
    """Takes a file from the request's stream; the answer says that it is in its place."""

    def __init__(self, ask: Ask, path: bytes, user: User, mode: int | None) -> None:
        self._ask = ask
        self._path = path
        self._user = user
        folder, name = os.path.split(path)
        if not name or os.path.isdir(path):
            raise RefusalError("conflict", "is_a_directory", f"{os.fsdecode(path)!r} is a directory.")
        self._mode = mode
        self._temporary = os.path.join(folder, b".outlive-" + os.urandom(8).hex().encode())
        with acting_as(user):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._temporary, flags, 0o600)
        self._stream = ask.streams["content"]
        self._size = 0
        self._stream.on_data = self._take
        self._stream.on_end = self._finish
        self._stream.on_gone = self._leave
        ask.on_withdrawn = self._give_up

    def _take(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._fail(error)
            return
        self._size += len(data)
        self._stream.consume(len(data))

    def _finish(self) -> None:
        if self._descriptor < 0:
            return
        try:
            with acting_as(self._user):
                os.fchmod(self._descriptor, self._wanted_mode())
                os.rename(self._temporary, self._path)
        except OSError as error:
            self._fail(error)
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._ask.answer({"size": self._size})
        self._stream.end()

    def _wanted_mode(self) -> int:
        if self._mode is not None:
            return self._mode & 0o7777
        try:
            return os.stat(self._path).st_mode & 0o7777
        except OSError:
            return 0o644

    def _fail(self, error: OSError) -> None:
        self._give_up()
        self._ask.refuse(refusal_of(error))

    def _leave(self) -> None:
        self._give_up()
        self._ask.refuse(RefusalError("conflict", "withdrawn", "The content did not come whole."))

    def _give_up(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(OSError), acting_as(self._user):
                os.unlink(self._temporary)
