"""A command in a machine, as somebody who is attached to it sees it: its output from an offset on, its stdin, its exit.

It is bound to one connection. When that breaks, `machine.guest_away` says so; the command goes on, and whoever cares
attaches again on the next connection with the same effect id, from the offsets it has safe.
"""

from collections.abc import AsyncIterator

import anyio

from outlive.base import ConflictError, EffectId, ExhaustedError
from outlive.guest.wire import WireError, Words
from outlive.machine.command import Chunk, Exit, HeldEffect, Pipe
from outlive.machine.guest_link.answers import read_exit
from outlive.machine.guest_link.channel import Asked, Channel
from outlive.machine.guest_link.stream import GuestStream


class RunningCommand:
    """Made by `Guest.start` and `Guest.attach`.

    The guest keeps at most 4 MiB that are not acknowledged; then the program waits. So take `chunks`, put them where
    they are safe, and `acknowledge`.
    """

    def __init__(
        self,
        channel: Channel,
        held: HeldEffect,
        outputs: dict[Pipe, tuple[GuestStream, int]],
        stdin: tuple[GuestStream, int] | None,
        exit_asked: Asked,
        *,
        is_new: bool,
    ) -> None:
        self.effect: EffectId = held.effect
        self.is_new = is_new  # False: it was running, or over, before
        self.held = held
        self.stdin_at = stdin[1] if stdin else 0  # so much of stdin the guest has taken before
        self._channel = channel
        self._streams = {pipe: stream for pipe, (stream, _) in outputs.items()}
        self.offsets: dict[Pipe, int] = {pipe: at for pipe, (_, at) in outputs.items()}  # up to here taken
        self._stdin = stdin[0] if stdin else None
        self._exit_asked = exit_asked
        self._changed = anyio.Event()
        for stream in self._streams.values():
            stream.on_change = self._wake

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def chunks(self) -> AsyncIterator[Chunk]:
        """What it prints, both pipes as it comes, until it is over and all of it was given."""
        waiting = dict(self._streams)
        while waiting:
            for pipe, stream in list(waiting.items()):
                while (data := stream.take_now()) is not None:
                    offset = self.offsets[pipe]
                    self.offsets[pipe] += len(data)
                    yield Chunk(pipe, offset, data)
                if stream.is_at_end:
                    if stream.lost is not None:
                        raise stream.lost
                    if stream.was_cut:
                        raise ExhaustedError("machine.detached", "Somebody else has attached to this command.")
                    del waiting[pipe]
            if waiting and not any(stream.has_data or stream.is_at_end for stream in waiting.values()):
                await self._changed.wait()

    async def exit(self, timeout_s: float | None = None) -> Exit:
        """Waits for it. The output may not all have come yet: `chunks` says."""
        if timeout_s is None:
            words = await self._exit_asked.answer()
        else:
            words = await self._channel.answer_of(self._exit_asked, "wait", timeout_s)
        return self._channel.read(words, self._read_exit)

    def _read_exit(self, words: Words) -> Exit:
        found = read_exit(words)
        is_all = all(stream.is_at_end and stream.lost is None for stream in self._streams.values())
        if is_all and self.offsets != {"stdout": found.stdout_size, "stderr": found.stderr_size}:
            raise WireError("an exit with other sizes than what came")
        return found

    async def acknowledge(self, timeout_s: float = 10.0) -> None:
        """All chunks that were given out so far are safe: the guest may let go of them."""
        words: Words = {"effect": self.effect, "stdout": self.offsets["stdout"], "stderr": self.offsets["stderr"]}
        await self._channel.call("acknowledge", words, timeout_s)

    async def send_stdin(self, data: bytes) -> None:
        if self._stdin is None:
            raise ConflictError("effect.no_stdin", "This command is followed without its stdin.")
        await self._stdin.send(data)

    def end_stdin(self) -> None:
        if self._stdin is not None:
            self._stdin.end()

    def leave(self) -> None:
        """Stop following; the command goes on."""
        for stream in (*self._streams.values(), *([self._stdin] if self._stdin else [])):
            stream.on_change = None
            stream.reset()
        if not self._exit_asked.is_answered:
            self._channel.withdraw(self._exit_asked)
