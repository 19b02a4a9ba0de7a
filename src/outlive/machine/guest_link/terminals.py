"""The terminals of a machine, through its guest. They live in the guest: attaching and leaving changes nothing there.

Who may type is decided above this: the guest takes what the host sends.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from outlive.base import ExhaustedError
from outlive.guest.wire import WireError, Words
from outlive.machine.guest_link import answers, facts
from outlive.machine.guest_link.channel import CALL_S, Channel
from outlive.machine.guest_link.facts import TerminalExit, TerminalFacts
from outlive.machine.guest_link.stream import GuestStream


class AttachedTerminal:
    """The output of a terminal from `offset` on, and its input if it was asked for."""

    def __init__(self, at: int, output: GuestStream, typed: GuestStream | None, input_at: int, *, is_gap: bool) -> None:
        self.offset = at  # of the next byte that `receive` gives
        self.is_gap = is_gap  # what was asked for begins before that, and is no longer held
        self.input_at = input_at  # bytes that were typed before, since birth
        self._output = output
        self._typed = typed

    async def receive(self) -> bytes | None:
        """The next bytes; None when the program has exited. `machine.terminal_gap` if we were too slow: attach anew."""
        data = await self._output.receive()
        if data is None and self._output.was_cut:
            raise ExhaustedError("machine.terminal_gap", "The terminal has printed more than it keeps: attach again.")
        self.offset += len(data or b"")
        return data

    async def send(self, data: bytes) -> None:
        if self._typed is None:
            raise ExhaustedError("machine.no_input", "This terminal was attached to without its input.")
        await self._typed.send(data)


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

    @asynccontextmanager
    async def attach(
        self, terminal: str, *, offset: int | None = None, with_input: bool = False, timeout_s: float = CALL_S
    ) -> AsyncIterator[AttachedTerminal]:
        """From `offset`, or from now on. With input: whoever had it before is cut off from typing."""
        output = self._channel.new_stream(is_reader=True)
        streams = {"output": output}
        if with_input:
            streams["input"] = self._channel.new_stream()
        try:
            words: Words = {"terminal": terminal, "from": offset}
            async with self._channel.asking("terminal_attach", words, streams) as asked:
                said = await self._channel.answer_of(asked, "terminal_attach", timeout_s)
            at, is_gap, input_at = self._channel.read(said, _read_attached)
            if offset is not None and (at < offset or (at > offset) != is_gap):
                raise self._channel.accuse(WireError("a terminal that begins where it was not asked to"))
            yield AttachedTerminal(at, output, streams.get("input"), input_at, is_gap=is_gap)
        finally:
            for stream in streams.values():
                stream.reset()

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

    async def close(self, terminal: str, timeout_s: float = CALL_S) -> None:
        """End its program and forget it, with its ring and its exit. Twice is once."""
        await self._channel.call("terminal_close", {"terminal": terminal}, timeout_s)


def _read_attached(words: Words) -> tuple[int, bool, int]:
    input_at = answers.maybe(answers.count, words, "input_at") or 0
    return answers.count(words, "at"), answers.flag(words, "is_gap"), input_at
