"""The door of one generation of a machine: the socket in a directory that its guest dials.

Whoever speaks on it is that machine: the directory is seen by its sandbox alone. One connection at a time: another one
is turned away while the first lives. A restarted node opens the door anew in the same directory and is found again.
"""

import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc

from outlive.base import DeadlineError, MachineId, OutliveError, UnavailableError
from outlive.guest.wire import VERSION, Decoder, Frame, Kind, WireError, Words, encode_words, read_words
from outlive.machine.guest_link import answers
from outlive.machine.guest_link.channel import Channel, guest_away
from outlive.machine.guest_link.connection import Connection
from outlive.machine.guest_link.facts import Quiesced
from outlive.machine.guest_link.guest import Guest, Hello

SOCKET = "ctl.sock"
HELLO_S = 5.0
_BOOT = re.compile(r"[0-9a-f]{32}")
_BACKLOG = 8
_HELLO_FRAMES = 1
_ACCEPT_PAUSE_S = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Welcome:
    """Who a guest is from now on."""

    machine: MachineId
    generation: int
    hostname: str
    seed: str  # of no use to anybody else: fresh for each generation
    env: Mapping[str, str] = field(default_factory=dict)


class GuestDoor:
    """Made by `open_door`."""

    def __init__(self, directory: Path, welcome: Welcome, tasks: anyio.abc.TaskGroup) -> None:
        self.welcome = welcome
        self._directory = directory
        self._tasks = tasks
        self._guest: Guest | None = None
        self._is_taken = False
        self._is_closed = False
        self._came = anyio.Event()
        self._serving: anyio.CancelScope | None = None
        self._inode = 0

    def open(self) -> None:
        """Listen. Replaces whatever socket was there, in one step."""
        if self._serving is not None:
            return
        listener = _listen(self._directory)
        self._inode = os.stat(self._directory / SOCKET).st_ino
        self._serving = anyio.CancelScope()
        self._tasks.start_soon(self._serve, listener, self._serving)

    def shut(self) -> None:
        """Take no new connection: before a checkpoint, which an open one would spoil."""
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None
            with suppress(FileNotFoundError):
                # Only our own: a newer process of the node may have put its door here.
                if os.lstat(self._directory / SOCKET).st_ino == self._inode:
                    (self._directory / SOCKET).unlink()

    def close(self) -> None:
        """For ever: whoever waits for the guest is told at once."""
        self.shut()
        self._is_closed = True
        self._came.set()
        if self._guest is not None:
            self._guest.close()

    async def guest(self, timeout_s: float) -> Guest:
        """The guest, as soon as it is here. `machine.guest_away` if it does not come in time, or never will."""
        with anyio.move_on_after(timeout_s):
            while not self._is_closed:
                if self._guest is not None and self._guest.is_here:
                    return self._guest
                await self._came.wait()
            raise guest_away("its door is closed")
        raise UnavailableError("machine.guest_away", f"The machine's guest did not come within {timeout_s:g} s.")

    async def quiesce(self, timeout_s: float) -> Quiesced:
        """Before a checkpoint: shut the door and have the guest let go of everything outside the machine.

        `open` afterwards lets it in again. If this fails the door is open as before.
        """
        guest = await self.guest(timeout_s)
        self.shut()
        try:
            with anyio.fail_after(timeout_s):
                said = await guest.quiesce(timeout_s)
                await guest.wait_gone()
        except (OutliveError, TimeoutError) as error:
            self.open()
            if isinstance(error, TimeoutError):
                raise DeadlineError("machine.guest_silent", "The machine's guest did not hang up.") from None
            raise
        return said

    async def _serve(self, listener: socket.socket, scope: anyio.CancelScope) -> None:
        with listener, scope:
            while True:
                await anyio.wait_readable(listener)
                try:
                    accepted, _ = listener.accept()
                except BlockingIOError:  # it has gone again
                    continue
                except OSError as error:  # no descriptors left: it waits in the backlog meanwhile
                    _log.warning("A guest cannot be let in now: %s.", error)
                    await anyio.sleep(_ACCEPT_PAUSE_S)
                    continue
                if self._is_taken:
                    accepted.close()
                else:
                    self._is_taken = True
                    self._tasks.start_soon(self._receive, accepted)

    async def _receive(self, accepted: socket.socket) -> None:
        connection = Connection(accepted)
        try:
            await self._greet(connection)
        finally:
            connection.close()
            self._is_taken = False

    async def _greet(self, connection: Connection) -> None:
        decoder = Decoder()
        try:
            with anyio.fail_after(HELLO_S):
                hello = self._read_hello(await _first_frame(connection, decoder))
                await connection.send(encode_words(Kind.WELCOME, 0, self._words()))
        except (WireError, TimeoutError, OSError) as error:
            _log.warning("A guest was turned away: %s.", str(error) or "it said nothing")
            return
        channel = Channel(connection, decoder)
        self._guest = Guest(channel, hello)
        self._came.set()
        self._came = anyio.Event()
        await channel.run()

    def _words(self) -> Words:
        said = self.welcome
        return {
            "machine": said.machine,
            "generation": said.generation,
            "hostname": said.hostname,
            "seed": said.seed,
            "env": dict(said.env),
        }

    def _read_hello(self, frame: Frame) -> Hello:
        if frame.kind is not Kind.HELLO:
            raise WireError("the first frame must be HELLO")
        words = read_words(frame.payload)
        if answers.count(words, "version") != VERSION:
            raise WireError("it speaks another version of the wire")
        effects = words.get("effects")
        if not isinstance(effects, dict):
            raise WireError("a HELLO without a summary of its effects")
        hello = Hello(
            boot=answers.text(words, "boot", 64),
            machine=answers.text(words, "machine", 128),
            generation=answers.count(words, "generation"),
            running=answers.count(effects, "running"),
            exited=answers.count(effects, "exited"),
        )
        if not _BOOT.fullmatch(hello.boot):
            raise WireError("a HELLO without a boot id")
        if hello.machine == self.welcome.machine and hello.generation > self.welcome.generation:
            raise WireError(f"it has been generation {hello.generation}, and this is {self.welcome.generation}")
        return hello


async def _first_frame(connection: Connection, decoder: Decoder) -> Frame:
    while True:
        data = await connection.receive()
        if not data:
            raise WireError("it hung up")
        frames = decoder.feed(data)
        if len(frames) > _HELLO_FRAMES:
            raise WireError("more than a HELLO")
        if frames:
            return frames[0]


@asynccontextmanager
async def open_door(directory: Path, welcome: Welcome) -> AsyncIterator[GuestDoor]:
    """Listen at `ctl.sock` in `directory` (which must exist) while inside."""
    async with anyio.create_task_group() as tasks:
        door = GuestDoor(directory, welcome, tasks)
        door.open()
        try:
            yield door
        finally:
            door.close()
            tasks.cancel_scope.cancel()


def _listen(directory: Path) -> socket.socket:
    """A listening socket that takes the place of `ctl.sock` only when it can be dialled."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    fresh = directory / f".{SOCKET}.new"
    try:
        fresh.unlink(missing_ok=True)
        with _short_address(fresh) as address:
            listener.bind(address)
        fresh.chmod(0o600)
        listener.listen(_BACKLOG)
        fresh.rename(directory / SOCKET)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """An address that fits a socket, however deep the directory is. Valid while inside."""
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
