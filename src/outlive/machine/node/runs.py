"""Commands that run once: the journal in SQL, the ledger in the guest, and the one who carries between them.

    begin (journal) ─ start (guest) ─ output ─ exit ─ result (journal) ─ forget (guest)

Rule 1: nothing is started that the journal does not name; nothing is forgotten in the guest before its result is there.
Rule 2: one carrier per effect, however many wait for it. It does not depend on any of them: a caller who goes away
        changes nothing, and one who comes again finds it.
Rule 3: what the journal has begun and the guest does not hold was never started: whoever asks again has it started.
        Where a machine comes back without what it did last, `up` has first called `lost` what nobody can know.
Rule 4: who waits for a guest that falls silent or stays away is told so after a while. The effect stays begun, and may
        be asked for again: nobody has said what became of it.
Rule 5: what the guest refuses to start has an end like any other command, as in a shell. It never ran, and never does.
"""

import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Literal

import anyio
import anyio.abc

from outlive.base import (
    CrashPoint,
    DeadlineError,
    EffectId,
    MachineId,
    NodeId,
    OutliveError,
    UnavailableError,
    reach,
)
from outlive.machine.command import Command, Exit, HeldEffect
from outlive.machine.door import ExecRequest, Output, digest_of
from outlive.machine.guest_link import Guest, RunningCommand
from outlive.machine.node.outputs import spool_of
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident, is_guest_away
from outlive.machine.node.run import EXIT_WITHIN_S, Run
from outlive.machine.node.unstarted import exit_of
from outlive.machine.records import Effects
from outlive.machine.status import Effect
from outlive.machine.terminal.shell import terminal_of

_log = logging.getLogger(__name__)

_ACKNOWLEDGE_AT = 1024 * 1024
_PAGE = 500
_RETRY_S = 0.2
_A_WHILE_S = 1.0
_PING_EVERY_S, _PING_WITHIN_S = 20.0, 20.0  # while a command runs
_AWAY_WITHIN_S = 60.0  # that a guest may be away, or break the wire again and again, before the waiting is over


def node_stops() -> OutliveError:
    """What is answered to whoever waits for a command when its node is stopped: never that it is over."""
    return UnavailableError("node.away", "The node of this machine is being stopped; ask again.")


class Runs:
    """All effects of this node that are under way."""

    def __init__(self, parts: NodeParts, tasks: anyio.abc.TaskGroup) -> None:
        self._parts = parts
        self._tasks = tasks
        self._runs: dict[tuple[MachineId, EffectId], Run] = {}

    async def begin(self, resident: Resident, request: ExecRequest) -> Run:
        """The run of this effect: begun now, found under way, or known to be over."""
        parts = self._parts
        async with resident.staying():  # what comes while the machine is put to sleep is not begun in it any more
            begun = await parts.effects.begin(
                resident.id,
                request.effect_id,
                node=parts.node,
                generation=resident.generation,
                digest=digest_of(request),
                at=parts.clock.now(),
            )
        if begun.is_new:
            reach(CrashPoint.EXEC_AFTER_BEGIN)
        return self._carry(resident, begun.effect, request, is_new=begun.is_new)

    async def take_up(self, resident: Resident) -> None:
        """Carry on with everything that the journal has begun for this machine: after a restart, after a wake."""
        for effect in await find_begun(self._parts.effects, resident.id):
            if terminal_of(effect) is None:
                self._carry(resident, effect, None)

    def find(self, machine: MachineId, effect: EffectId) -> Run | None:
        return self._runs.get((machine, effect))

    def _carry(self, resident: Resident, effect: Effect, request: ExecRequest | None, *, is_new: bool = False) -> Run:
        key = (resident.id, effect.id)
        run = self._runs.get(key)
        if run is not None and run.resident is resident:
            if request is not None:
                run.ask(request)
        else:  # one of an older generation is about to end
            run = Run(resident, effect, spool_of(self._parts.path, resident.id) / effect.id, request)
            if effect.is_over:
                run.started.set()
                run.done.set()
                return run
            self._runs[key] = run
            self._tasks.start_soon(self._run, resident, run, is_new)
        return run

    async def _run(self, resident: Resident, run: Run, is_new: bool) -> None:
        resident.commands += 1
        resident.is_dirty = True
        try:
            if not is_new:
                # What was read before this run was known may be old: the run before it may have ended, and been
                # forgotten by the guest, which would start the command again.
                run.effect = await self._parts.effects.find(resident.id, run.effect.id) or run.effect
            if not run.effect.is_over:
                await self._follow(resident, run)
        except OutliveError as error:
            run.error = error
        except OSError as error:  # of the spool: the host's disk is full, say. The effect stays begun.
            _log.error("effect %s of machine %s: %s", run.effect.id, resident.id, error)
            run.error = _unkept(error)
        finally:
            resident.commands -= 1
            resident.touch()
            if self._runs.get((resident.id, run.effect.id)) is run:
                del self._runs[resident.id, run.effect.id]
            if run.error is None and not run.effect.is_over:
                run.error = node_stops()  # it goes on in its machine: whoever asks again finds it
            run.started.set()
            run.done.set()

    async def _follow(self, resident: Resident, run: Run) -> None:
        clock = self._parts.clock
        run.well_at = clock.monotonic()
        while True:
            try:
                exit = await self._attend(resident, run)
                if exit == "asked":
                    continue
            except OutliveError as error:
                if resident.ended == "lost":
                    await self._finish(run, None, holder=(self._parts.node, resident.generation))
                    return
                if resident.ended is not None:
                    resident.check()
                if not is_guest_away(error) or clock.monotonic() - run.well_at > _AWAY_WITHIN_S:
                    raise
                await anyio.sleep(_RETRY_S)
                continue
            await self._finish(run, exit, holder=(self._parts.node, resident.generation))
            run.started.set()
            run.done.set()  # whoever waits has it now; that the guest lets go of it costs nobody a round trip
            with suppress(OutliveError):  # it stays in the ledger, which is bounded and says so
                async with resident.use() as guest:
                    await guest.forget(run.effect.id)
            return

    async def _attend(self, resident: Resident, run: Run) -> Exit | Literal["asked"]:
        """Start it or join it, and take what it prints until it is over. `asked`: somebody came with the request, and
        with what is to be fed to it."""
        request = run.request
        held: HeldEffect | None = None
        async with AsyncExitStack() as stack:
            async with resident.use() as guest:  # not for as long as it runs: a checkpoint may come between
                if request is None or run.effect.generation != resident.generation:
                    held = await guest.find(run.effect.id)
                if held is None and request is None:
                    raise UnavailableError("effect.not_started", f"{run.effect.id!r} was not started; ask again.")
                try:
                    running = await stack.enter_async_context(_joining(guest, run, held))
                except OutliveError as error:
                    if held is not None or (exit := exit_of(error)) is None:
                        raise
                    run.say(error.message)
                    return exit
            run.join(running.offsets)
            reach(CrashPoint.EXEC_AFTER_START)
            run.started.set()
            run.running = running
            joined_at = self._parts.clock.monotonic()
            try:
                return await self._attend_to(resident, guest, run, running, request)
            finally:
                run.running = None
                if (now := self._parts.clock.monotonic()) - joined_at > _A_WHILE_S:
                    run.well_at = now

    async def _attend_to(
        self, resident: Resident, guest: Guest, run: Run, running: RunningCommand, request: ExecRequest | None
    ) -> Exit | Literal["asked"]:
        came_of_it: Exit | OutliveError | Literal["asked"] = "asked"
        async with anyio.create_task_group() as group:
            group.start_soon(_mind, resident, guest)
            if request is not None and request.stdin is not None:
                group.start_soon(_feed, running, request.stdin.encode(errors="surrogateescape"))
            elif request is None:
                group.start_soon(_cancel_when_asked, run, group.cancel_scope)
            try:
                came_of_it = await self._take(resident, run, running)
            except OutliveError as error:  # not through the task group, which would wrap it
                came_of_it = error
            group.cancel_scope.cancel()
        if isinstance(came_of_it, OutliveError):
            raise came_of_it
        return came_of_it

    async def _take(self, resident: Resident, run: Run, running: RunningCommand) -> Exit:
        unacknowledged = 0
        async for chunk in running.chunks():
            stream = run.streams[chunk.pipe]
            offset = stream.size
            try:
                new = stream.take(chunk.offset, chunk.data)
            except OSError as error:
                raise _unkept(error) from error
            if new:
                run.tell(Output(chunk.pipe, offset, new))
                resident.touch()
            unacknowledged += len(new)
            if unacknowledged >= _ACKNOWLEDGE_AT:
                unacknowledged = 0
                await self._acknowledge(resident, run)
        return await running.exit(EXIT_WITHIN_S)

    async def _acknowledge(self, resident: Resident, run: Run) -> None:
        kept = {pipe: stream.kept for pipe, stream in run.streams.items()}
        guest = await resident.door.guest(EXIT_WITHIN_S)
        await guest.acknowledge(run.effect.id, kept["stdout"], kept["stderr"])

    async def _finish(self, run: Run, exit: Exit | None, *, holder: tuple[NodeId, int] | None) -> None:
        reach(CrashPoint.EXEC_BEFORE_RECORD)
        parts = self._parts
        stdout, stderr = run.streams["stdout"], run.streams["stderr"]
        blobs = {"stdout_blob": await stdout.store(parts.objects), "stderr_blob": await stderr.store(parts.objects)}
        cut = stdout.missing + stderr.missing + (0 if exit is None else exit.stdout_cut + exit.stderr_cut)
        result = run.effect.model_copy(
            update={
                "state": "lost" if exit is None else "timeout" if exit.reason == "timeout" else "finished",
                "exit_code": _exit_code(exit),
                "stdout": stdout.text,
                "stderr": stderr.text,
                "truncated": stdout.is_longer or stderr.is_longer or cut > 0,
                "cut_bytes": cut,
                "ended_at": parts.clock.now(),
                **blobs,
            }
        )
        run.effect = await parts.effects.finish(result, holder=holder)
        reach(CrashPoint.EXEC_AFTER_RECORD)
        stdout.discard()
        stderr.discard()


async def find_begun(effects: Effects, machine: MachineId) -> list[Effect]:
    """What the journal has begun for a machine, and has no result of."""
    begun: list[Effect] = []
    after = 0
    while page := await effects.list(machine, after=after, limit=_PAGE):
        begun += [effect for effect in page if not effect.is_over]
        after = page[-1].n
    return begun


def _unkept(error: OSError) -> UnavailableError:
    return UnavailableError("node.spool", f"The node cannot keep what the command prints ({error.strerror}).")


def _exit_code(exit: Exit | None) -> int | None:
    """As a shell says it: 128 + the signal for one that was ended by a signal."""
    if exit is None:
        return None
    return exit.code if exit.code is not None else 128 + (exit.signal or 0)


def _joining(guest: Guest, run: Run, held: HeldEffect | None) -> AbstractAsyncContextManager[RunningCommand]:
    """Start it, unless the guest knows it after all; or join what it holds."""
    # The first time from all that the guest still has: see `KeptStream.rewind`.
    stdout_from, stderr_from = (run.streams[pipe].size if run.is_joined else 0 for pipe in ("stdout", "stderr"))
    if held is None:
        assert run.request is not None
        command = _command(run.resident, run.request)
        return guest.start(command, stdout_from=stdout_from, stderr_from=stderr_from)
    with_stdin = held.stdin_taken is not None
    return guest.attach(run.effect.id, stdout_from=stdout_from, stderr_from=stderr_from, with_stdin=with_stdin)


def _command(resident: Resident, request: ExecRequest) -> Command:
    spec = resident.spec
    return Command(
        effect=request.effect_id,
        argv=request.argv if request.argv is not None else request.command or "",
        cwd=request.cwd,
        env=request.env,
        user=request.user or spec.user,
        timeout_s=request.timeout_s,
        output_limit=spec.limits.output_mib * 1024 * 1024,
        has_stdin=request.stdin is not None or request.background,
    )


async def _mind(resident: Resident, guest: Guest) -> None:
    """Hang up on a guest that does not answer: it may have been stopped by its own machine. A sound one dials again."""
    while True:
        await anyio.sleep(_PING_EVERY_S)
        if resident.frozen:
            continue
        try:
            await guest.ping(_PING_WITHIN_S)
        except DeadlineError:
            guest.close("it does not answer")
            return
        except OutliveError:
            return  # it is away: whoever attends to the command was told the same


async def _feed(running: RunningCommand, stdin: bytes) -> None:
    try:
        await running.send_stdin(stdin[running.stdin_at :])
    except UnavailableError:
        return  # it did not want all of it, or is away: its output says which
    running.end_stdin()


async def _cancel_when_asked(run: Run, scope: anyio.CancelScope) -> None:
    await run.asked.wait()
    scope.cancel()
