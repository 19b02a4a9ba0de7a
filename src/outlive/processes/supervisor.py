"""The supervisor: starts the processes of the embedded stack, restarts whichever dies, and says so.

Rule 1: it holds the listening socket of the API and hands it to each API it starts. So the port stays the same and
        stays ours, and whoever connects while the API is being restarted waits a moment instead of being refused.
Rule 2: however it ends, its processes end: by signal when it can (`Life.end`), by the lifeline when it cannot. Those
        that others need until their own end (Temporal) end last.
Rule 3: no file that cannot be written (a full disk) ends it once it runs: no log, not the record, not its own words.
Which processes there are is said in `members.py`; what is restarted, and when it is enough, in `restart.py`.
"""

import itertools
import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.abc

from outlive.base import BrokenError, ExhaustedError, OutliveError
from outlive.processes import proc, temporal_server
from outlive.processes.child import GRACE_S, Child, Life, start
from outlive.processes.lifeline import Lifeline
from outlive.processes.listen import check_address, check_certificate, listen, url_of
from outlive.processes.logs import rotate, tail
from outlive.processes.machines import Machines, look_for_machines
from outlive.processes.members import members
from outlive.processes.private_file import write_private
from outlive.processes.record import ChildRecord, StackRecord, hold_lock, read_record, remove_record, write_record
from outlive.processes.restart import MOST_DOUBLINGS, Death, GiveUp, RestartPolicy, decide_restart, say_exit
from outlive.wiring.providers import model_of_default, without_providers
from outlive.wiring.settings import PREFIX, Settings, prepare_home

LAST_LINES = 15
_TEND_EVERY_S = 5.0


class Notice(NamedTuple):
    """Something that the supervisor has to say: to a person, and to a program."""

    event: str
    text: str
    facts: dict[str, str | int | float]


Tell = Callable[[Notice], None]


def supervise(settings: Settings, tell: Tell) -> None:
    """Run the stack until a signal says stop. Raises `conflict` if one is running here or a port is taken, `invalid` if
    something that it needs is not there, `broken` if a process keeps dying."""
    os.umask(0o077)
    check_address(settings.api)
    check_certificate(settings.api)
    machines = look_for_machines(settings)
    prepare_home(settings)
    tell = _never_failing(tell)
    with hold_lock(settings.run_path):
        try:
            record = _take_over(settings, machines, tell)
            _run(settings, record, machines, tell)
        finally:
            settings.temporal_address_path.unlink(missing_ok=True)
            remove_record(settings.run_path)


def _run(settings: Settings, record: StackRecord, machines: Machines, tell: Tell) -> None:
    listener = listen(settings.api)
    lifeline = Lifeline()
    try:
        url = url_of(settings.api, listener)
        port = _prepare_temporal(settings, tell)
        if not machines.is_on:
            tell(Notice("machines_off", f"machines are off: {machines.why}", {"why": machines.why}))
        children = members(settings, listener, url, lifeline, temporal_port=port, has_node=machines.is_on)
        anyio.run(_supervise, settings, replace(record, url=url, children=()), children, tell)
    finally:
        listener.close()
        lifeline.close()


async def _supervise(settings: Settings, record: StackRecord, children: tuple[Child, ...], tell: Tell) -> None:
    await Supervisor(settings, record, children, tell).run()


def _prepare_temporal(settings: Settings, tell: Tell) -> int | None:
    """The port of the embedded server, which everybody is told; None if a cluster is used. What is wrong with it is
    said here, before anything is started."""
    if not settings.temporal.is_embedded:
        return None
    version = temporal_server.ask_version(temporal_server.find_program())
    port = temporal_server.choose_port(settings.temporal.port)
    try:
        moved = temporal_server.prepare_folder(settings.temporal_path, version)
        write_private(settings.temporal_address_path, f"{temporal_server.HOST}:{port}\n")
    except OSError as error:
        raise ExhaustedError(
            "temporal.no_room", f"{str(settings.temporal_path)!r} cannot be made ready: {error.strerror}."
        ) from None
    if moved:
        tell(Notice("temporal_moved", moved, {"version": version}))
    return port


def _never_failing(tell: Tell) -> Tell:
    def tell_if_possible(notice: Notice) -> None:
        with suppress(OSError):
            tell(notice)

    return tell_if_possible


def _take_over(settings: Settings, machines: Machines, tell: Tell) -> StackRecord:
    """Say that we are the supervisor now, so that `outlive down` finds us from the first moment on, and end what a
    killed one left behind: that is ending by itself; hurry it, for it may still hold the port."""
    last = read_record(settings.run_path)
    orphans = [child for child in last.children if proc.is_alive(last.process_of(child))] if last else []
    me = proc.find(os.getpid())
    assert me is not None
    cert = settings.api.tls_cert
    # Who comes after us, if we are killed now, has the same orphans to end.
    off = None if machines.is_on else machines.why
    tls, node_path = str(cert) if cert else None, str(settings.node_path)
    record = StackRecord(me.pid, me.started, me.boot, None, tls, tuple(orphans), off, node_path)
    try:
        write_record(settings.run_path, record)
    except OSError as error:
        raise ExhaustedError(
            "stack.no_record",
            f"{str(settings.run_path)!r} cannot be written: {error.strerror}. Make room, or set it right.",
        ) from None
    for process in proc.end((record.process_of(child) for child in orphans), grace_s=GRACE_S):
        tell(Notice("orphan_ended", f"ended what the last run left behind (pid {process.pid})", {"pid": process.pid}))
    return record


class Supervisor:
    def __init__(self, settings: Settings, record: StackRecord, children: tuple[Child, ...], tell: Tell) -> None:
        assert record.url is not None
        self._settings = settings
        self._tell = tell
        self._policy = RestartPolicy(
            settings.supervisor.restarts,
            settings.supervisor.window_s,
            settings.supervisor.first_delay_s,
            settings.supervisor.max_delay_s,
        )
        self._url = record.url
        environment = environment_of(settings)
        self._environments = {
            child.name: environment if child.name == "worker" else without_providers(environment) for child in children
        }
        self._children = children
        self._running: dict[str, Life] = {}
        self._ready: set[str] = set()
        self._work = anyio.CancelScope()
        self._record = record
        self._is_recorded = False

    async def run(self) -> None:
        failures: BaseExceptionGroup[OutliveError] | None = None
        async with anyio.create_task_group() as outside:
            # Outside of the work that a signal ends: a second signal is heard while the first is obeyed.
            await outside.start(self._watch_signals)
            try:
                self._write_record()  # whoever finds us there may tell us to stop: by now we hear it
                with self._work:
                    await self._keep_all()
            except* OutliveError as group:
                failures = group
            outside.cancel_scope.cancel()
        if failures is not None:
            raise _first(failures)
        self._tell(Notice("stopped", "stopped", {}))

    async def _keep_all(self) -> None:
        async with anyio.create_task_group() as group:
            for child in self._children:
                group.start_soon(self._keep, child)
            group.start_soon(self._tend_files)

    async def _watch_signals(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        wanted = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup asks for
            wanted.append(signal.SIGHUP)
        with anyio.open_signal_receiver(*wanted) as signals:
            task_status.started()
            async for number in signals:
                if self._work.cancel_called:
                    for life in self._running.values():
                        with suppress(ProcessLookupError):
                            life.process.kill()
                    continue
                self._tell(Notice("stopping", f"stopping ({number.name})", {"signal": number.name}))
                self._work.cancel()

    # ── one child ──

    async def _keep(self, child: Child) -> None:
        """Start it, and start it again when it dies, until that is enough."""
        # As many deaths as can matter: for the bound one more than are forgiven, for the delay one for each doubling.
        deaths: deque[Death] = deque(maxlen=max(self._policy.restarts, MOST_DOUBLINGS) + 1)
        for restarts in itertools.count():
            try:
                exit_code, death = await self._run_once(child, restarts)
                how = say_exit(exit_code)
            except OSError as error:  # no process, no memory, no file left on this host; that may pass
                exit_code, death = 1, Death(time.monotonic())
                how = f"cannot be started: {error.strerror}"
            deaths.append(death)
            decision = decide_restart(self._policy, deaths, exit_code)
            if isinstance(decision, GiveUp):
                raise self._last_word(child, how, decision)
            self._tell(
                Notice(
                    "died",
                    f"{child.name} died ({how}); starting it again in {decision.delay_s:g} s",
                    {"process": child.name, "exit_code": exit_code, "delay_s": decision.delay_s},
                )
            )
            await anyio.sleep(decision.delay_s)

    async def _run_once(self, child: Child, restarts: int) -> tuple[int, Death]:
        """Run it to its end and say how it ended. Whoever cancels this ends it."""
        with anyio.CancelScope(shield=True):  # never half started
            life = await start(
                child, self._environments[child.name], self._log_path(child), self._settings.supervisor.log_bytes
            )
        pid = life.process.pid
        try:
            self._running[child.name] = life
            self._note(child, pid, restarts)
            self._tell(Notice("started", f"{child.name} started (pid {pid})", {"process": child.name, "pid": pid}))
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_ready, life)
                exit_code = await life.process.wait()
                group.cancel_scope.cancel()
            return exit_code, life.death(self._settings.supervisor.well_after_s)
        finally:
            self._ready.discard(child.name)
            with anyio.CancelScope(shield=True):
                await self._end(life)
            del self._running[child.name]
            life.close()

    async def _end(self, life: Life) -> None:
        """End it, after those that need it. That takes at most twice `GRACE_S`: they end all at the same time."""
        if life.process.returncode is None:
            for other in [self._running[name] for name in life.child.ends_after if name in self._running]:
                await other.gone.wait()
        await life.end()

    def _note(self, child: Child, pid: int, restarts: int) -> None:
        found = proc.find(pid)
        known = {each.name: each for each in self._record.children if each.name != child.name}
        if found:
            known[child.name] = ChildRecord(child.name, pid, found.started, restarts)
        in_order = tuple(known[each.name] for each in self._children if each.name in known)
        self._record = replace(self._record, children=in_order)
        self._write_record()

    def _last_word(self, child: Child, how: str, decision: GiveUp) -> BrokenError:
        log_path = self._log_path(child)
        lines = "\n".join(f"  | {line}" for line in tail(log_path, LAST_LINES))
        return BrokenError(
            "stack.keeps_dying",
            f"{child.name} is not started again: {decision.reason} (last: {how}). Everything was stopped. "
            f"The last lines of {log_path}:\n{lines}\nMend the cause and start again; outlive doctor may name it.",
            process=child.name,
        )

    def _log_path(self, child: Child) -> Path:
        return self._settings.logs_path / f"{child.name}.log"

    # ── all of them ──

    async def _watch_ready(self, life: Life) -> None:
        """Note when what was started is ready, and say so when all are."""
        if not await life.wait_ready():
            return
        self._ready.add(life.child.name)
        if len(self._ready) == len(self._children):
            self._tell(Notice("ready", f"ready at {self._url}", {"url": self._url, "pid": self._record.pid}))

    def _write_record(self) -> None:
        # A record that cannot be written now names us all the same, and we end what we started.
        with suppress(OSError):
            self._is_recorded = False
            write_record(self._settings.run_path, self._record)
            self._is_recorded = True

    async def _tend_files(self) -> None:
        """Keep the logs below their bound, and make up for a record that could not be written."""
        while True:
            await anyio.sleep(_TEND_EVERY_S)
            if not self._is_recorded:
                self._write_record()
            for child in self._children:
                rotate(self._log_path(child), self._settings.supervisor.log_bytes)
            rotate(self._settings.logs_path / "up.log", self._settings.supervisor.log_bytes)


def environment_of(settings: Settings) -> dict[str, str]:
    """What a child has to see to come to the same settings as we did, flags included. No secret is added."""
    ours = {f"{PREFIX}HOME": str(settings.home), f"{PREFIX}LOOP__MODEL": model_of_default(settings)}
    for name, value in settings.api.model_dump(mode="json", exclude_none=True, exclude={"token"}).items():
        ours[f"{PREFIX}API__{name.upper()}"] = value if isinstance(value, str) else json.dumps(value)
    return {**os.environ, **ours}


def _first(group: BaseExceptionGroup[OutliveError]) -> OutliveError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, OutliveError)
    return error
