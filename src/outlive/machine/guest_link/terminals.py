"""The terminals of a machine, through its guest. They live in the guest: attaching and leaving changes nothing there.

Who may type is decided above this: the guest takes what the host sends.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from outlive.base import ConflictError, ExhaustedError
from outlive.guest.wire import WireError, Words
from outlive.machine.guest_link import answers, facts
from outlive.machine.guest_link.channel import CALL_S, Channel
from outlive.machine.guest_link.facts import DroppedInput, LineFacts, TerminalExit, TerminalFacts
from outlive.machine.guest_link.stream import GuestStream

ACKNOWLEDGE_AT = 256 * 1024  # a quarter of the guest's ring: it never waits for a recorder that keeps up


class AttachedTerminal:
    """The output of a terminal from `offset` on, and its input if it was asked for."""

    def __init__(
        self, channel: Channel, terminal: str, at: int, output: GuestStream, *, is_gap: bool, is_recorder: bool
    ) -> None:
        self.offset = at  # of the next byte that `receive` gives
        self.is_gap = is_gap  # what was asked for begins before that, and is no longer held
        self._channel = channel
        self._terminal = terminal
        self._output = output
        self._is_recorder = is_recorder
        self._acknowledged = at
        self._typed: GuestStream | None = None
        self.input_at = 0  # where the input stream began: bytes that were typed before, since birth
        self._skipped = 0  # of the input, since then: given up and never sent

    def with_input(self, typed: GuestStream, input_at: int) -> "AttachedTerminal":
        self._typed = typed
        self.input_at = input_at
        return self

    async def receive(self) -> bytes | None:
        """The next bytes; None when the program has exited. `machine.terminal_gap` if we were too slow: attach anew.

        A recorder is never too slow; `machine.recorder_replaced` if another has come.
        """
        data = await self._output.receive()
        if data is None and self._output.was_cut:
            if self._is_recorder:
                raise ConflictError("machine.recorder_replaced", "Another recorder has attached to this terminal.")
            raise ExhaustedError("machine.terminal_gap", "The terminal has printed more than it keeps: attach again.")
        self.offset += len(data or b"")
        return data

    def ack(self, offset: int) -> None:
        """What is before `offset` is safe: the guest may drop it. Costs nothing; the guest is told now and then."""
        if offset - self._acknowledged >= ACKNOWLEDGE_AT:
            self._acknowledged = offset
            self._channel.tell("terminal_ack", {"terminal": self._terminal, "offset": offset})

    @property
    def input_end(self) -> int:
        """What is typed next begins here: bytes typed since birth, with those on their way and those given up."""
        return self.input_at + self._skipped + (0 if self._typed is None else self._typed.sent)

    async def send(self, data: bytes) -> None:
        """Type it. Returns when it is on its way, in order; waits while the program does not read."""
        if self._typed is None:
            raise ExhaustedError("machine.no_input", "This terminal was attached to without its input.")
        await self._typed.send(data)

    async def type(self, data: bytes, *, at: int) -> None:
        """Type `data`, whose first byte is the input's byte `at`: what was typed already is not typed again.

        One caller at a time. Cut off in the middle, `input_end` says how far it came. `machine.input_hole` if bytes
        before `at` are missing.
        """
        if at > self.input_end:
            message = f"The terminal has taken {self.input_end} bytes of input; this begins at {at}."
            raise ConflictError("machine.input_hole", message, input=self.input_end)
        if fresh := data[self.input_end - at :]:
            await self.send(fresh)

    def type_now(self, data: bytes, *, at: int) -> bool:
        """Type all of it if the guest takes it at once and it begins where the input ends; or nothing."""
        return self._typed is not None and at == self.input_end and self._typed.send_now(data)

    async def drop_input(self, upto: int | None = None, timeout_s: float = CALL_S) -> DroppedInput:
        """Give up what was typed and is not in the PTY yet, and what would still come before `upto`.

        All of it counts as taken and is never written. No `type` may be under way: cancel it first.
        """
        return await drop_input(self._channel, self._terminal, self._skip(upto), timeout_s)

    def tell_drop(self, upto: int | None = None) -> None:
        """The same for a guest that stands still, and nobody waits for it: the word is the next that it hears."""
        self._channel.tell("terminal_drop_input", {"terminal": self._terminal, "upto": self._skip(upto)})

    def _skip(self, upto: int | None) -> int:
        end = max(self.input_end, upto or 0)
        self._skipped += end - self.input_end
        return end


async def drop_input(channel: Channel, terminal: str, upto: int, timeout_s: float) -> DroppedInput:
    said = await channel.call("terminal_drop_input", {"terminal": terminal, "upto": upto}, timeout_s)
    return channel.read(said, facts.read_dropped_input)


class GuestTerminals:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def open(
        self,
        terminal: str,
        *,
        argv: Sequence[str] | None = None,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_s: float = CALL_S,
    ) -> TerminalFacts:
        """Open it, or find it: an id that the guest knows is never opened again."""
        words: Words = {"terminal": terminal, "columns": columns, "rows": rows, "env": dict(env or {})}
        for name, value in (("argv", None if argv is None else list(argv)), ("cwd", cwd), ("user", user)):
            if value is not None:
                words[name] = value
        return self._channel.read(await self._channel.call("terminal_open", words, timeout_s), facts.read_terminal)

    async def list(self, timeout_s: float = CALL_S) -> list[TerminalFacts]:
        return self._channel.read(await self._channel.call("terminals", {}, timeout_s), facts.read_terminals)

    async def line(self, terminal: str, timeout_s: float = CALL_S) -> LineFacts:
        """Whether its program waits for keys and has read all that were typed. A guest that was started before it could
        be asked refuses (`machine.unknown_verb`)."""
        return self._channel.read(
            await self._channel.call("terminal_line", {"terminal": terminal}, timeout_s), facts.read_line
        )

    @asynccontextmanager
    async def attach(
        self,
        terminal: str,
        *,
        offset: int | None = None,
        with_input: bool = False,
        is_recorder: bool = False,
        timeout_s: float = CALL_S,
    ) -> AsyncIterator[AttachedTerminal]:
        """From `offset`, or from now on. With input: whoever had it before is cut off from typing.

        The recorder's `offset` says that what is before it is safe; from there on the guest keeps every byte until it
        is acknowledged. A recorder before it is cut off.
        """
        output = self._channel.new_stream(is_reader=True)
        streams = {"output": output}
        if with_input:
            streams["input"] = self._channel.new_stream()
        try:
            words: Words = {"terminal": terminal, "from": offset, "recorder": is_recorder}
            async with self._channel.asking("terminal_attach", words, streams) as asked:
                said = await self._channel.answer_of(asked, "terminal_attach", timeout_s)
            at, is_gap, input_at = self._channel.read(said, _read_attached)
            if offset is not None and (at < offset or (at > offset) != is_gap):
                raise self._channel.accuse(WireError("a terminal that begins where it was not asked to"))
            attached = AttachedTerminal(self._channel, terminal, at, output, is_gap=is_gap, is_recorder=is_recorder)
            yield attached.with_input(streams["input"], input_at) if with_input else attached
        finally:
            for stream in streams.values():
                stream.reset()

    async def drop_input(self, terminal: str, upto: int = 0, timeout_s: float = CALL_S) -> DroppedInput:
        """As on an attached terminal, for one whose input nobody has."""
        return await drop_input(self._channel, terminal, upto, timeout_s)

    async def wait(self, terminal: str, timeout_s: float) -> TerminalExit:
        """How its program ended. The output may not all have been read yet."""
        said = await self._channel.call("terminal_wait", {"terminal": terminal}, timeout_s)
        found = self._channel.read(said, facts.read_terminal_exit)
        if found is None:
            raise self._channel.accuse(WireError("an exit that is none"))
        return found

    async def resize(self, terminal: str, columns: int, rows: int, timeout_s: float = CALL_S) -> None:
        words: Words = {"terminal": terminal, "columns": columns, "rows": rows}
        await self._channel.call("terminal_resize", words, timeout_s)

    async def signal(self, terminal: str, number: int, timeout_s: float = CALL_S) -> None:
        """To what runs in its foreground."""
        await self._channel.call("terminal_signal", {"terminal": terminal, "signal": number}, timeout_s)

    async def end_group(self, terminal: str, group: int, timeout_s: float = CALL_S) -> bool:
        """SIGKILL to all who are left of a group that was in its foreground. Whether somebody was. A guest that was
        started before it could be asked refuses (`machine.unknown_verb`)."""
        words: Words = {"terminal": terminal, "group": group}
        said = await self._channel.call("terminal_end_group", words, timeout_s)
        return self._channel.read(said, _read_was_there)

    async def close(self, terminal: str, timeout_s: float = CALL_S) -> None:
        """End its program and forget it, with its ring and its exit. Twice is once."""
        await self._channel.call("terminal_close", {"terminal": terminal}, timeout_s)


def _read_was_there(words: Words) -> bool:
    return answers.flag(words, "was_there")


def _read_attached(words: Words) -> tuple[int, bool, int]:
    input_at = answers.maybe(answers.count, words, "input_at") or 0
    return answers.count(words, "at"), answers.flag(words, "is_gap"), input_at
