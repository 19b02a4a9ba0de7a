"""Machines without `async`: every method runs its async twin on the client's loop. Nothing is decided here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from outlive.client.loop import Loop
from outlive.client.machine_wire import EgressFacts, ExecResult, FileFacts, MachineFacts, Piece
from outlive.client.machines import LIST_LIMIT, AsyncMachine, AsyncMachines, MachineShown
from outlive.client.sync_terminals import MachineTerminals


class Machine(MachineShown):
    def __init__(self, loop: Loop, twin: AsyncMachine) -> None:
        super().__init__(twin.facts)
        self._loop = loop
        self._twin = twin
        self.terminals = MachineTerminals(loop, twin.terminals)

    @property
    def facts(self) -> MachineFacts:
        return self._twin.facts

    def refresh(self) -> Self:
        """Ask the server again; returns itself."""
        self._loop.run(self._twin.refresh)
        return self

    def pause(self) -> Self:
        """Stop everything in it until `resume`."""
        self._loop.run(self._twin.pause)
        return self

    def resume(self) -> Self:
        self._loop.run(self._twin.resume)
        return self

    def hibernate(self) -> Self:
        """Save it, memory included, and give up its place."""
        self._loop.run(self._twin.hibernate)
        return self

    def wake(self) -> Self:
        self._loop.run(self._twin.wake)
        return self

    def checkpoint(self) -> str:
        """Save it as it is now; it goes on. Returns the checkpoint's id."""
        return self._loop.run(self._twin.checkpoint)

    def fork(self, count: int = 1) -> "list[Machine]":
        """So many copies of it as it is now, memory included."""
        return [Machine(self._loop, each) for each in self._loop.run(self._twin.fork, count)]

    def delete(self) -> None:
        """Delete it for good."""
        self._loop.run(self._twin.delete)

    def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
        user: str | None = None,
        background: bool = False,
        effect_id: str | None = None,
    ) -> ExecResult:
        """Run a command, once, and return what came of it. A text runs under `bash -c`, a sequence as it is."""
        return self._loop.run(
            self._twin.exec,
            command,
            cwd=cwd,
            env=env,
            timeout_s=timeout_s,
            stdin=stdin,
            user=user,
            background=background,
            effect_id=effect_id,
        )

    def stream(self, command: str | Sequence[str], **given: Any) -> Iterator[Piece | ExecResult]:
        """The same with its output as it comes; the result is last. Takes what `exec` takes, but `background`."""
        told = self._twin.stream(command, **given)

        async def step() -> Piece | ExecResult | None:
            return await anext(told, None)

        try:
            while (next_told := self._loop.run(step)) is not None:
                yield next_told
        finally:
            if self._loop.close.alive:
                self._loop.run(told.aclose)

    def effect(self, effect_id: str) -> ExecResult:
        """What is known of a command. Does not wake the machine."""
        return self._loop.run(self._twin.effect, effect_id)

    def signal(self, effect_id: str, number: int) -> None:
        """Send a signal to a running command and all its children."""
        self._loop.run(self._twin.signal, effect_id, number)

    def write_stdin(self, effect_id: str, text: str, *, end: bool = False, offset: int | None = None) -> int:
        """Type into a command that runs in the background."""
        return self._loop.run(self._twin.write_stdin, effect_id, text, end=end, offset=offset)

    def egress(self, *, after: int = 0, limit: int | None = LIST_LIMIT) -> list[EgressFacts]:
        """What was decided on its connections to the outside, oldest first, from behind number `after`. `limit=None`:
        all there are. Does not wake the machine."""
        return self._loop.run(self._twin.egress, after=after, limit=limit)

    def read_file(self, path: str) -> bytes:
        """All of a file. A path without a slash in front is in /workspace."""
        return self._loop.run(self._twin.read_file, path)

    def write_file(self, path: str, content: bytes, *, mode: int | None = None) -> int:
        """Write a file, whole or not at all; directories above it are made. Returns its size."""
        return self._loop.run(self._twin.write_file, path, content, mode=mode)

    def stat_file(self, path: str) -> FileFacts:
        return self._loop.run(self._twin.stat_file, path)

    def list_files(self, path: str = ".") -> list[FileFacts]:
        return self._loop.run(self._twin.list_files, path)

    def delete_file(self, path: str, *, recursive: bool = False) -> None:
        self._loop.run(self._twin.delete_file, path, recursive=recursive)


Found = list[Machine]  # `list` is also a method here


class Machines:
    def __init__(self, loop: Loop, twin: AsyncMachines) -> None:
        self._loop = loop
        self._twin = twin

    def create(
        self, *, environment: str | None = None, name: str | None = None, conversation: str | None = None
    ) -> Machine:
        """Make a machine. It is running when this returns."""
        made = self._loop.run(self._twin.create, environment=environment, name=name, conversation=conversation)
        return Machine(self._loop, made)

    def get(self, id: str) -> Machine:
        return Machine(self._loop, self._loop.run(self._twin.get, id))

    def egress(self, id: str, *, after: int = 0, limit: int | None = LIST_LIMIT) -> "list[EgressFacts]":
        """As of a machine; also of one that was deleted."""
        return self._loop.run(self._twin.egress, id, after=after, limit=limit)

    def list(self, *, limit: int | None = LIST_LIMIT, state: str | None = None) -> Found:
        """Newest first; `state`: one or more, with commas. `limit=None`: all there are."""
        return [Machine(self._loop, each) for each in self._loop.run(self._twin.list, limit=limit, state=state)]
