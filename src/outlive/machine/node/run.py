"""One effect on its way: what is known of it in this process, whoever waits for it, follows it or types to it."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from outlive.base import ConflictError, EffectId, OutliveError, UnavailableError
from outlive.machine.command import Pipe
from outlive.machine.door import ExecRequest, Output
from outlive.machine.guest_link import Guest, RunningCommand
from outlive.machine.node.outputs import KeptStream
from outlive.machine.node.resident import Resident
from outlive.machine.status import Effect

EXIT_WITHIN_S = 30.0
FOLLOWER_QUEUE = 256  # pieces of output; a slower follower misses some, and sees by their offsets that it did


class Run:
    """Made by `Runs`, which carries it."""

    def __init__(self, resident: Resident, effect: Effect, spool: Path, request: ExecRequest | None) -> None:
        self.resident = resident
        self.effect = effect
        self.request = request  # None: taken up from the journal, and nobody has come to ask for it yet
        self.asked = anyio.Event()  # somebody has
        self.streams = {
            pipe: KeptStream.reopen(spool.with_suffix(f".{pipe}"), resident.spec.limits.output_mib * 1024 * 1024)
            for pipe in ("stdout", "stderr")
        }
        self.started = anyio.Event()
        self.done = anyio.Event()
        self.error: OutliveError | None = None
        self.is_joined = False  # once at least, by this process
        self.well_at = 0.0  # monotonic: when the guest was last with us for a while
        self.followers: list[MemoryObjectSendStream[Output]] = []
        self.typing = anyio.Lock()
        self.running: RunningCommand | None = None  # while we are attached to it

    async def result(self) -> Effect:
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.effect

    def ask(self, request: ExecRequest) -> None:
        """Whoever asks brings the request: what a node before us was told, and has taken with it."""
        if self.request is None:
            self.request = request
            self.asked.set()

    async def type(self, data: bytes, *, offset: int | None, end: bool) -> int:
        """Into its stdin, from `offset` on: what was taken before is left out. Returns how much of it was taken since
        its start, when the guest has it."""
        async with self.typing:
            running = self.running
            if self.effect.is_over:
                raise ConflictError("effect.no_stdin", f"The command {self.effect.id!r} is over.")
            if running is None:
                raise UnavailableError("machine.guest_away", "The machine does not answer just now; ask again.")
            guest = await self.resident.door.guest(EXIT_WITHIN_S)
            at = await _stdin_taken(guest, self.effect.id)
            if offset is not None and offset > at:
                raise ConflictError(
                    "effect.stdin_hole", f"{at} bytes of stdin have come, and this begins at {offset}.", stdin_at=at
                )
            await running.send_stdin(data if offset is None else data[at - offset :])
            if end:
                running.end_stdin()
                return at + len(data) if offset is None else max(at, offset + len(data))
            # What was sent before a question has come when it is answered.
            return await _stdin_taken(guest, self.effect.id)

    def so_far(self) -> list[Output]:
        """What it has printed, for one who comes late. Not before it was joined: what an earlier process has kept may
        be taken back then."""
        if not self.is_joined or self.done.is_set():
            return []
        stdout, stderr = (self.streams[pipe].beginning for pipe in ("stdout", "stderr"))
        return [each for each in (Output("stdout", 0, stdout), Output("stderr", 0, stderr)) if each.data]

    def join(self, offsets: Mapping[Pipe, int]) -> None:
        """The guest gives its output from these on."""
        if not self.is_joined:
            self.is_joined = True
            for pipe, offset in offsets.items():
                self.streams[pipe].rewind(offset)

    def say(self, text: str) -> None:
        """A line on its stderr that is not the command's own: there is none."""
        self.join({"stdout": 0, "stderr": 0})
        stderr, line = self.streams["stderr"], f"{text}\n".encode("utf-8", "replace")
        self.tell(Output("stderr", stderr.size, line))
        stderr.take(stderr.size, line)

    def tell(self, output: Output) -> None:
        for follower in self.followers:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                follower.send_nowait(output)


async def _stdin_taken(guest: Guest, effect: EffectId) -> int:
    held = await guest.find(effect)
    if held is None or held.stdin_taken is None:
        raise ConflictError("effect.no_stdin", f"The command {effect!r} has no open stdin.")
    return held.stdin_taken
