"""Terminals without `async`: every method runs its async twin on the client's loop. Nothing is decided here."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from outlive.client.attaching import Attachment, OnLost
from outlive.client.loop import Loop
from outlive.client.machine_wire import ExecResult
from outlive.client.terminal_wire import Mode, TerminalFacts, TerminalFrame
from outlive.client.terminals import CLIENT, AsyncMachineTerminals, AsyncTerminals, Found


class SyncAttachment:
    """An iterator over frames, and a context manager. Ends with the terminal."""

    def __init__(self, loop: Loop, twin: Attachment) -> None:
        self._loop = loop
        self._twin = twin

    @property
    def offset(self) -> int | None:
        """Of the next byte of output: attach from here another time, and nothing is missed."""
        return self._twin.offset

    @property
    def lease(self) -> Mapping[str, Any] | None:
        return self._twin.lease

    def __iter__(self) -> Iterator[TerminalFrame]:
        while (frame := self._loop.run(self._twin.next_frame)) is not None:
            yield frame

    def send(self, data: bytes) -> None:
        """Type. Whether it was taken is told by frames: without the lease it is `refused`."""
        self._loop.run(self._twin.send, data)

    def resize(self, cols: int, rows: int) -> None:
        self._loop.run(self._twin.resize, cols, rows)

    def close(self) -> None:
        """Leave. The terminal goes on."""
        if self._loop.close.alive:
            self._loop.run(self._twin.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()


class Terminals:
    def __init__(self, loop: Loop, twin: AsyncTerminals) -> None:
        self._loop = loop
        self._twin = twin

    def open(
        self,
        machine: str,
        command: str | Sequence[str] | None = None,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> TerminalFacts:
        """Open a terminal in a machine: a command, or a shell."""
        return self._loop.run(self._twin.open, machine, command, cols=cols, rows=rows, cwd=cwd, env=env, user=user)

    def get(self, id: str) -> TerminalFacts:
        return self._loop.run(self._twin.get, id)

    def list(self, machine: str) -> Found:
        """All of a machine, those that ended included, oldest first."""
        return self._loop.run(self._twin.list, machine)

    def attach(
        self,
        id: str,
        *,
        mode: Mode = "observe",
        offset: int | None = None,
        client: str = CLIENT,
        give_up_after_s: float | None = None,
        on_lost: OnLost | None = None,
    ) -> SyncAttachment:
        """Watch it, or with `mode="type"` also type. From an `offset` every byte since then, without one the present
        screen first; then live. Comes back by itself."""
        twin = self._twin.attach(
            id, mode=mode, offset=offset, client=client, give_up_after_s=give_up_after_s, on_lost=on_lost
        )
        return SyncAttachment(self._loop, twin)

    def take(self, id: str) -> TerminalFacts:
        """Take the lease: a person needs nobody's consent for it."""
        return self._loop.run(self._twin.take, id)

    def yield_(self, id: str) -> TerminalFacts:
        """Give the lease up."""
        return self._loop.run(self._twin.yield_, id)

    def grant(self, id: str, operator: str) -> TerminalFacts:
        """Hand the lease to a principal, by id or name."""
        return self._loop.run(self._twin.grant, id, operator)

    def input(self, id: str, data: bytes | str) -> TerminalFacts:
        """Type, once. If somebody else holds the lease: a conflict, and nothing reaches the machine."""
        return self._loop.run(self._twin.input, id, data)

    def resize(self, id: str, cols: int, rows: int) -> TerminalFacts:
        return self._loop.run(self._twin.resize, id, cols, rows)

    def signal(self, id: str, signal: int | str) -> TerminalFacts:
        """To what runs in the foreground: a number, or a name such as INT."""
        return self._loop.run(self._twin.signal, id, signal)

    def close(self, id: str) -> TerminalFacts:
        """End its program. What was recorded stays."""
        return self._loop.run(self._twin.close, id)

    def run(self, id: str, command: str, *, timeout_s: float | None = None, effect_id: str | None = None) -> ExecResult:
        """Type a command into the shell that runs there, once, and return what came of it."""
        return self._loop.run(self._twin.run, id, command, timeout_s=timeout_s, effect_id=effect_id)

    def screen(self, id: str) -> str:
        """What is seen now, as plain text."""
        return self._loop.run(self._twin.screen, id)

    def drawing(self, id: str) -> bytes:
        """What draws the present screen on an empty one of its size."""
        return self._loop.run(self._twin.drawing, id)

    def account(self, id: str, start: int = 0, end: int | None = None) -> dict[str, Any]:
        """What was typed, by whom, and printed between two offsets, as one piece."""
        return self._loop.run(self._twin.account, id, start, end)

    def output(self, id: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes that it printed between two offsets."""
        return self._loop.run(self._twin.output, id, start, end)

    def recording(self, id: str) -> bytes:
        """All of it as asciicast v3."""
        return self._loop.run(self._twin.recording, id)


class MachineTerminals:
    """The terminals of one machine."""

    def __init__(self, loop: Loop, twin: AsyncMachineTerminals) -> None:
        self._loop = loop
        self._twin = twin

    def open(self, command: str | Sequence[str] | None = None, **given: Any) -> TerminalFacts:
        """Open one: a command, or a shell. Takes what `Terminals.open` takes."""
        return self._loop.run(self._twin.open, command, **given)

    def list(self) -> Found:
        return self._loop.run(self._twin.list)
