"""The host's side of a guest: a typed method for everything that it can be asked, over one connection.

What it answers is the machine's own word. Every call has a deadline (`machine.guest_silent`); when the connection
breaks all calls end with `machine.guest_away`, and the door has the next `Guest` as soon as the machine dials again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from outlive.base import DeadlineError, EffectId, NotFoundError, OutliveError, UnavailableError
from outlive.guest.wire import WireError, Words
from outlive.machine.command import Command, Finished, HeldEffect, Pipe
from outlive.machine.guest_link import answers, facts
from outlive.machine.guest_link.channel import CALL_S, Channel
from outlive.machine.guest_link.facts import Activity, ProcessFacts, Quiesced
from outlive.machine.guest_link.files import GuestFiles
from outlive.machine.guest_link.running import RunningCommand
from outlive.machine.guest_link.stream import GuestStream
from outlive.machine.guest_link.terminals import GuestTerminals

LEDGER_LIMIT = 8192
PROCESS_LIMIT = 10_000
_PAGE = 128
_ACKNOWLEDGE_AT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Hello:
    """What a guest said of itself when it came."""

    boot: str  # of this guest process: another one means a reboot
    machine: str  # it last was; empty at its first boot
    generation: int  # it last had; 0 at its first boot
    running: int
    exited: int


class Guest:
    def __init__(self, channel: Channel, hello: Hello) -> None:
        self._channel = channel
        self.hello = hello
        self.files = GuestFiles(channel)
        self.terminals = GuestTerminals(channel)

    @property
    def is_here(self) -> bool:
        return self._channel.away is None

    async def wait_gone(self) -> None:
        await self._channel.wait_gone()

    def close(self, why: str = "the host closed the connection") -> None:
        self._channel.close(why)

    def accuse(self, what: str) -> UnavailableError:
        """It has broken the rules: end the connection."""
        return self._channel.accuse(WireError(what))

    async def ping(self, timeout_s: float = CALL_S) -> None:
        await self._channel.call("ping", {}, timeout_s)

    async def slept(self, seconds: float, timeout_s: float = CALL_S) -> None:
        """The machine stood still for so long: its timeouts are moved. Say it before it is thawed."""
        await self._channel.call("slept", {"seconds": seconds}, timeout_s)

    async def quiesce(self, timeout_s: float = CALL_S) -> Quiesced:
        """Let go of everything outside the machine. The guest hangs up after its answer (see `GuestDoor.quiesce`)."""
        return self._channel.read(await self._channel.call("quiesce", {}, timeout_s), facts.read_quiesced)

    async def activity(self, timeout_s: float = CALL_S) -> Activity:
        """What speaks against freezing or hibernating the machine."""
        return self._channel.read(await self._channel.call("activity", {}, timeout_s), facts.read_activity)

    async def processes(self, timeout_s: float = CALL_S) -> list[ProcessFacts]:
        """All of them, within that time."""
        try:
            with anyio.fail_after(timeout_s):
                return await self._all_processes(timeout_s)
        except TimeoutError:
            message = f"The machine's guest did not name its processes within {timeout_s:g} s."
            raise DeadlineError("machine.guest_silent", message) from None

    async def _all_processes(self, timeout_s: float) -> list[ProcessFacts]:
        found: list[ProcessFacts] = []
        after, empty, is_last = 0, 0, False
        while not is_last and len(found) < PROCESS_LIMIT:
            said = await self._channel.call("processes", {"after": after}, timeout_s)
            page, last, is_last = self._channel.read(said, facts.read_processes)
            empty += not page
            if not is_last and (last <= after or empty > facts.EMPTY_PAGES):
                raise self.accuse("a list of processes without an end")
            after = last
            found += page
        return found

    async def ports(self, timeout_s: float = CALL_S) -> list[int]:
        """The TCP ports that something in the machine listens on."""
        return self._channel.read(await self._channel.call("ports", {}, timeout_s), facts.read_ports)

    @asynccontextmanager
    async def connect(self, port: int, timeout_s: float = CALL_S) -> AsyncIterator[GuestStream]:
        """A connection to a port on the machine's loopback. `port.refused` if nothing listens there."""
        stream = self._channel.new_stream()
        try:
            async with self._channel.asking("connect", {"port": port}, {"connection": stream}) as asked:
                await self._channel.answer_of(asked, "connect", timeout_s)
            yield stream
        finally:
            stream.reset()

    # Commands

    @asynccontextmanager
    async def start(
        self, command: Command, *, stdout_from: int = 0, stderr_from: int = 0, timeout_s: float = CALL_S
    ) -> AsyncIterator[RunningCommand]:
        """Start it, or find it: an effect id that the guest knows is never run again. Follow it while inside."""
        words: Words = {
            "effect": command.effect,
            "env": dict(command.env),
            "timeout_s": command.timeout_s,
            "output_limit": command.output_limit,
        }
        if isinstance(command.argv, str):
            words["command"] = command.argv
        else:
            words["argv"] = list(command.argv)
        for name, value in (("cwd", command.cwd), ("user", command.user)):
            if value is not None:
                words[name] = value
        words |= {"stdout_from": stdout_from, "stderr_from": stderr_from}
        async with self._join("start", words, has_stdin=command.has_stdin, timeout_s=timeout_s) as running:
            yield running

    @asynccontextmanager
    async def attach(
        self,
        effect: EffectId,
        *,
        stdout_from: int = 0,
        stderr_from: int = 0,
        with_stdin: bool = False,
        timeout_s: float = CALL_S,
    ) -> AsyncIterator[RunningCommand]:
        """Follow a command that the guest holds, from these offsets. Whoever followed it before is cut off."""
        words: Words = {"effect": effect, "stdout_from": stdout_from, "stderr_from": stderr_from}
        async with self._join("attach", words, has_stdin=with_stdin, timeout_s=timeout_s) as running:
            yield running

    @asynccontextmanager
    async def _join(
        self, verb: str, words: Words, *, has_stdin: bool, timeout_s: float
    ) -> AsyncIterator[RunningCommand]:
        channel = self._channel
        streams = {"stdout": channel.new_stream(is_reader=True), "stderr": channel.new_stream(is_reader=True)}
        if has_stdin:
            streams["stdin"] = channel.new_stream()
        async with (
            channel.asking(verb, words, streams) as asked,
            channel.asking("wait", {"effect": words["effect"]}) as exit_asked,
        ):
            try:
                said = await channel.answer_of(asked, verb, timeout_s)
                held, is_new, places = self._channel.read(said, _read_joined)
                if held.effect != words["effect"] or not _is_place_right(held, places, is_new=is_new):
                    raise channel.accuse(WireError("another command than was asked for"))
            except BaseException:
                for stream in streams.values():
                    stream.reset()
                raise
            running = RunningCommand(
                channel,
                held,
                {"stdout": (streams["stdout"], places[0]), "stderr": (streams["stderr"], places[1])},
                (streams["stdin"], places[2]) if has_stdin else None,
                exit_asked,
                is_new=is_new,
            )
            try:
                yield running
            finally:
                running.leave()

    async def run(self, command: Command, stdin: bytes = b"") -> Finished:
        """Start it (or find it), follow it to its end, and keep all that it prints. The ledger still holds it then."""
        async with self.start(command) as running:
            if not command.has_stdin:
                return await _follow(running)
            outcome: Finished | OutliveError
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, running, stdin)
                try:
                    outcome = await _follow(running)
                except OutliveError as error:
                    outcome = error
                tasks.cancel_scope.cancel()
            if isinstance(outcome, OutliveError):
                raise outcome
            return outcome

    async def find(self, effect: EffectId, timeout_s: float = CALL_S) -> HeldEffect | None:
        """How it stands; None if the guest does not hold it."""
        try:
            said = await self._channel.call("find", {"effect": effect}, timeout_s)
        except NotFoundError:
            return None
        return self._channel.read(said, answers.read_held)

    async def effects(self, timeout_s: float = CALL_S) -> list[HeldEffect]:
        """The whole ledger."""
        held: list[HeldEffect] = []
        is_last = False
        while not is_last:
            after = held[-1].effect if held else ""
            said = await self._channel.call("effects", {"after": after}, timeout_s)
            page, is_last = self._channel.read(said, _read_page)
            if not is_last and (not page or page[-1].effect <= after or len(held) > LEDGER_LIMIT):
                raise self._channel.accuse(WireError("a ledger without an end"))
            held += page
        return held

    async def signal(self, effect: EffectId, number: int, timeout_s: float = CALL_S) -> None:
        """To the command's whole process group."""
        await self._channel.call("signal", {"effect": effect, "signal": number}, timeout_s)

    async def acknowledge(self, effect: EffectId, stdout: int, stderr: int, timeout_s: float = CALL_S) -> None:
        """The output before these offsets is safe."""
        await self._channel.call("acknowledge", {"effect": effect, "stdout": stdout, "stderr": stderr}, timeout_s)

    async def forget(self, effect: EffectId, timeout_s: float = CALL_S) -> None:
        """Take it out of the ledger: its result is safe on the host. `conflict` while it runs."""
        await self._channel.call("forget", {"effect": effect}, timeout_s)


async def _follow(running: RunningCommand) -> Finished:
    parts: dict[Pipe, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    unacknowledged = 0
    async for chunk in running.chunks():
        parts[chunk.pipe] += chunk.data
        unacknowledged += len(chunk.data)
        if unacknowledged >= _ACKNOWLEDGE_AT:
            await running.acknowledge()
            unacknowledged = 0
    return Finished(await running.exit(CALL_S), bytes(parts["stdout"]), bytes(parts["stderr"]))


async def _feed(running: RunningCommand, stdin: bytes) -> None:
    try:
        await running.send_stdin(stdin[running.stdin_at :])
    except UnavailableError:
        return  # it did not want all of it, or is away: its output says which
    running.end_stdin()


def _read_joined(words: Words) -> tuple[HeldEffect, bool, tuple[int, int, int]]:
    places = (
        answers.count(words, "stdout_at"),
        answers.count(words, "stderr_at"),
        answers.count(words, "stdin_at") if "stdin_at" in words else 0,
    )
    return answers.read_held(words), answers.flag(words, "is_new"), places


def _is_place_right(held: HeldEffect, places: tuple[int, int, int], *, is_new: bool) -> bool:
    if is_new:
        return places == (0, 0, 0)
    return places[0] <= held.stdout_size and places[1] <= held.stderr_size


def _read_page(words: Words) -> tuple[list[HeldEffect], bool]:
    return [answers.read_held(row) for row in answers.rows(words, "effects", _PAGE)], answers.flag(words, "is_last")
