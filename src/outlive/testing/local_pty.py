"""One terminal on a PTY of this host: its program, those who are attached, what it printed. For tests alone."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from outlive.base import Clock, ConflictError
from outlive.machine.terminal import frames, journal, lease
from outlive.machine.terminal.door import (
    Act,
    AttachTerminal,
    Close,
    Grant,
    Input,
    OpenTerminal,
    Present,
    Resize,
    Signal,
    Take,
    TerminalView,
    Yield,
)
from outlive.machine.terminal.frames import Channel, Frame
from outlive.machine.terminal.newest import HeldSegment, Newest
from outlive.machine.terminal.records import TerminalRecords
from outlive.machine.terminal.screen import Screens
from outlive.machine.terminal.status import Lease, Operator, Terminal

BEHIND_LIMIT = 4 * 1024 * 1024  # bytes that wait for one observer
_PIECE = 64 * 1024

Upload = Callable[[Terminal, Sequence[journal.Record]], Awaitable[None]]
"""Put the next segment of a recording into the object store and its index."""


class House(Protocol):
    """What all terminals of a test share."""

    records: TerminalRecords
    upload: Upload
    screens: Screens
    clock: Clock


class LocalStream:
    """One attachment."""

    def __init__(self, terminal: "LocalTerminal", asked: AttachTerminal, since: datetime) -> None:
        operator = asked.operator
        self.present = Present(
            operator=operator.id,
            name=operator.name,
            kind=operator.kind,
            mode=asked.mode,
            since=since,
            client=asked.client,
        )
        self._terminal = terminal
        self._operator = operator
        self._mode = asked.mode
        self._waiting: deque[Frame] = deque()
        self._size = 0
        self._is_ended = False
        self._changed = anyio.Event()

    def say(self, channel: Channel, payload: bytes) -> None:
        if self._is_ended:
            return
        if self._size + len(payload) > BEHIND_LIMIT:
            unsent = [*self._waiting, Frame(channel, payload)]
            offset = self._terminal.offset - sum(len(f.payload) for f in unsent if f.channel is Channel.OUTPUT)
            self._waiting.clear()
            self._size = 0
            self._waiting.append(Frame(Channel.STATUS, frames.status_detached(offset, "slow")))
            self.end()
            return
        self._waiting.append(Frame(channel, payload))
        self._size += len(payload)
        self._changed.set()

    def end(self) -> None:
        """After what waits nothing more comes."""
        self._is_ended = True
        self._terminal.leave(self)
        self._changed.set()

    async def send(self, channel: Channel, payload: bytes) -> None:
        if self._is_ended:
            raise anyio.BrokenResourceError
        try:
            if channel is Channel.INPUT:
                if self._mode == "observe":
                    raise ConflictError("terminal.leased", "It only watches.")
                await self._terminal.act(self._operator, Input(data=payload))
            elif channel is Channel.RESIZE:
                size = frames.read_resize(payload)
                await self._terminal.act(self._operator, Resize(cols=size.cols, rows=size.rows))
        except ConflictError:
            self.say(Channel.STATUS, frames.status_refused(self._terminal.record.lease))

    async def receive(self) -> tuple[Channel, bytes] | None:
        while not self._waiting:
            if self._is_ended:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        frame = self._waiting.popleft()
        self._size -= len(frame.payload)
        return frame

    async def aclose(self) -> None:
        self._waiting.clear()
        self.end()


class LocalTerminal:
    """One PTY and its program."""

    def __init__(self, record: Terminal, asked: OpenTerminal, house: House, cwd: Path) -> None:
        self.record = record
        self.offset = 0
        self._house = house
        self._kept = bytearray()  # all that it printed
        self._records: list[journal.Record] = []
        self._sent = 0  # of those, in the object store
        self._typed = 0
        self._attached: list[LocalStream] = []
        self._last: tuple[Frame, ...] | None = None  # what those hear who were let in while it ended, too
        self._screen = house.screens.new(record.cols, record.rows)
        self._master, self._process = _start(asked, cwd)
        self.resize(record.cols, record.rows)

    # ── what it prints ──

    async def read(self) -> None:
        """Until its program has ended."""
        while True:
            await anyio.wait_readable(self._master)
            try:
                data = os.read(self._master, _PIECE)
            except OSError:  # the last one has closed the other side
                data = b""
            if not data:
                break
            self._records.append(journal.Output(self._now(), self.offset, data))
            self._kept += data
            self.offset += len(data)
            self._screen.feed(data)
            self._say(Channel.OUTPUT, data)
        await self._end()

    async def _end(self) -> None:
        code = await anyio.to_thread.run_sync(self._process.wait)
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        self._records.append(journal.Mark(self._now(), self.offset, "exit", {"exit": exit_code, "signal": number}))
        await self.flush()
        now = self._now()
        await self.change(
            lambda t: t.model_copy(
                update={
                    "state": "exited" if t.is_open else t.state,
                    "exit_code": exit_code,
                    "signal": number,
                    "lease": None,
                    "ended_at": now,
                }
            )
        )
        self._last = (
            Frame(Channel.STATUS, frames.status_exit(exit_code, number)),
            Frame(Channel.FINAL, frames.final_exit(exit_code, number)),
        )
        for stream in list(self._attached):
            self._end_stream(stream, self._last)

    def _end_stream(self, stream: LocalStream, last: tuple[Frame, ...]) -> None:
        for frame in last:
            stream.say(*frame)
        stream.end()

    def _say(self, channel: Channel, payload: bytes) -> None:
        for stream in list(self._attached):
            stream.say(channel, payload)

    # ── who is there ──

    async def attach(self, asked: AttachTerminal) -> LocalStream:
        if asked.offset is not None and asked.offset > self.offset:
            raise ConflictError("terminal.offset", f"It has printed {self.offset} bytes.", offset=self.offset)
        await self._lease(
            asked.operator,
            "attach",
            lambda held: lease.decide_attach(
                held,
                asked.operator,
                mode=asked.mode,
                now=self._now(),
                offset=self.offset,
                is_return=asked.is_return,
            ),
        )
        stream = LocalStream(self, asked, self._now())
        is_screen = asked.offset is None
        offset = self.offset if asked.offset is None else asked.offset
        stream.say(Channel.STATUS, frames.status_attached(self.record, offset, is_screen=is_screen))
        if is_screen:
            stream.say(Channel.OUTPUT, self._screen.draw())
            stream.say(Channel.STATUS, frames.status_offset(offset))
        for at in range(offset, self.offset, _PIECE):
            stream.say(Channel.OUTPUT, bytes(self._kept[at : at + _PIECE]))
        self._attached.append(stream)
        self._say_operators()
        if self._last is not None:
            self._end_stream(stream, self._last)
        return stream

    def leave(self, stream: LocalStream) -> None:
        if stream in self._attached:
            self._attached.remove(stream)
            self._say_operators()

    def _say_operators(self) -> None:
        self._say(Channel.STATUS, frames.status_operators([each.present for each in self._attached]))

    def send_away(self) -> None:
        self._say(Channel.STATUS, frames.status_machine("hibernated"))
        self.cut()

    def cut(self) -> None:
        """End every attachment, as a node that is stopped does."""
        for stream in list(self._attached):
            stream.end()

    def view(self) -> TerminalView:
        return TerminalView(
            terminal=self.record, offset=self.offset, operators=tuple(each.present for each in self._attached)
        )

    # ── what is done to it ──

    async def act(self, operator: Operator, act: Act) -> None:
        lease.check_open(self.record)
        now, offset = self._now(), self.offset
        match act:
            case Take():
                await self._lease(
                    operator, "take", lambda held: lease.decide_take(held, operator, now=now, offset=offset)
                )
            case Yield():
                await self._lease(operator, "yield", lambda held: lease.decide_yield(held, operator))
            case Grant():
                await self._lease(
                    operator,
                    "grant",
                    lambda held: lease.decide_grant(held, operator, act.operator, now=now, offset=offset),
                )
            case Input():
                await self._lease(
                    operator, "input", lambda held: lease.decide_input(held, operator, now=now, offset=offset)
                )
                await self._type(operator, act.data)
            case Resize():
                if lease.may_resize(self.record.lease, operator):
                    await self.change(lambda t: t.model_copy(update={"cols": act.cols, "rows": act.rows}))
                    self.resize(act.cols, act.rows)
                    self._records.append(journal.Resize(now, offset, act.cols, act.rows, _actor(operator)))
                    self._say(Channel.STATUS, frames.status_size(act.cols, act.rows))
            case Signal():
                lease.check_may_type(self.record.lease, operator)
                self._records.append(journal.signal_sent(now, offset, _actor(operator), act.number))
                os.killpg(os.tcgetpgrp(self._master), act.number)
            case Close():
                lease.check_may_close(self.record, operator)
                await self.change(lambda t: t.model_copy(update={"state": "closed", "reason": "closed"}))
                self.kill()

    async def _lease(
        self, operator: Operator, how: journal.LeaseChange, decide: Callable[[Lease | None], Lease | None]
    ) -> None:
        before = self.record.lease
        await self.change(lambda terminal: terminal.model_copy(update={"lease": decide(terminal.lease)}))
        if self.record.lease != before:
            self._records.append(journal.Leased(self._now(), self.offset, self.record.lease, _actor(operator), how))
            self._say(Channel.STATUS, frames.status_lease(self.record.lease))

    async def _type(self, operator: Operator, data: bytes) -> None:
        self._records.append(journal.Input(self._now(), self.offset, self._typed, _actor(operator), data))
        self._typed += len(data)
        while data:
            await anyio.wait_writable(self._master)
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._master, data) :]

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self._screen.resize(cols, rows)

    async def change(self, decide: Callable[[Terminal], Terminal]) -> None:
        self.record = await self._house.records.change(self.record.id, decide)

    async def flush(self) -> Terminal:
        new = self._records[self._sent :]
        if new:
            self._sent += len(new)
            await self._house.upload(self.record, new)
            self.record = await self._house.records.get(self.record.id)
        return self.record

    def newest(self) -> Newest:
        new = self._records[self._sent :]
        held: tuple[HeldSegment, ...] = ()
        if new:
            record = self.record
            header = journal.Header(
                terminal=record.id,
                n=record.segments + 1,
                offset=record.recorded_to,
                input_offset=0,
                generation=1,
                at=new[0].at,
            )
            content = journal.encode_header(header) + journal.encode_many(new)
            held = (HeldSegment(n=header.n, content=content),)
        return Newest(terminal=self.record, offset=self.offset, held=held)

    def stop(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.wait()
        os.close(self._master)
        self._screen.close()

    def _now(self) -> datetime:
        return self._house.clock.now()


def _start(asked: OpenTerminal, cwd: Path) -> tuple[int, "subprocess.Popen[bytes]"]:
    argv = list(asked.argv or ("bash", "--norc", "--noprofile", "-i"))
    if asked.command is not None:
        argv = ["bash", "-c", asked.command]
    cwd.mkdir(parents=True, exist_ok=True)
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(  # noqa: S603  programs are what it is for
            argv,
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "PS1": "$ ", "HISTFILE": "", **asked.env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    except OSError:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    return master, process


def _actor(operator: Operator) -> journal.Actor:
    return journal.Actor(operator.id, operator.name, operator.kind)
