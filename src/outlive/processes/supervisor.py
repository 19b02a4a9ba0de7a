"""The supervisor: starts the processes of the embedded stack, restarts whichever dies, and says so.

Rule 1: it holds the listening socket of the API and hands it to each API it starts. So the port stays the same and
        stays ours, and whoever connects while the API is being restarted waits a moment instead of being refused.
Rule 2: however it ends, its processes end: by signal when it can (`_end`), by the lifeline when it cannot.
Rule 3: its children are in sessions of their own, so a Ctrl-C reaches only the supervisor, which ends them in order.
Rule 4: no file that cannot be written (a full disk) ends it once it runs: no log, not the record, not its own words.
What is restarted, and when it is enough, is decided in `restart.py`.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import anyio
import anyio.abc
import anyio.to_thread

from outlive.base import BrokenError, ExhaustedError, OutliveError
from outlive.processes import proc
from outlive.processes.endpoint import read_endpoint
from outlive.processes.lifeline import Lifeline
from outlive.processes.listen import check_address, check_certificate, listen, url_of
from outlive.processes.logs import open_log, rotate, tail
from outlive.processes.probe import Health, probe
from outlive.processes.record import ChildRecord, StackRecord, hold_lock, read_record, remove_record, write_record
from outlive.processes.restart import MOST_DOUBLINGS, Death, GiveUp, RestartPolicy, decide_restart, say_exit
from outlive.wiring.settings import PREFIX, Settings, prepare_home

GRACE_S = 10.0  # that a process has to end in after SIGTERM: longer than the API's own bound
LAST_LINES = 15
_TEND_EVERY_S = 5.0
_PROBE_EVERY_S = 0.05


class Notice(NamedTuple):
    """Something that the supervisor has to say: to a person, and to a program."""

    event: str
    text: str
    facts: dict[str, str | int | float]


Tell = Callable[[Notice], None]


class Child(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    descriptors: tuple[int, ...]


def supervise(settings: Settings, tell: Tell) -> None:
    """Run the stack until a signal says stop. Raises `conflict` if one is running here or the port is taken, `broken`
    if a process keeps dying."""
    os.umask(0o077)
    check_address(settings.api)
    check_certificate(settings.api)
    prepare_home(settings)
    tell = _never_failing(tell)
    with hold_lock(settings.run_path):
        try:
            record = _take_over(settings, tell)
            listener = listen(settings.api)
            lifeline = Lifeline()
            try:
                record = replace(record, url=url_of(settings.api, listener), children=())
                anyio.run(_supervise, settings, record, listener, lifeline, tell)
            finally:
                listener.close()
                lifeline.close()
        finally:
            remove_record(settings.run_path)


async def _supervise(
    settings: Settings, record: StackRecord, listener: socket.socket, lifeline: Lifeline, tell: Tell
) -> None:
    await Supervisor(settings, record, listener, lifeline, tell).run()


def _never_failing(tell: Tell) -> Tell:
    def tell_if_possible(notice: Notice) -> None:
        with suppress(OSError):
            tell(notice)

    return tell_if_possible


def _take_over(settings: Settings, tell: Tell) -> StackRecord:
    """Say that we are the supervisor now, so that `outlive down` finds us from the first moment on, and end what a
    killed one left behind: that is ending by itself; hurry it, for it may still hold the port."""
    last = read_record(settings.run_path)
    orphans = [child for child in last.children if proc.is_alive(last.process_of(child))] if last else []
    me = proc.find(os.getpid())
    assert me is not None
    cert = settings.api.tls_cert
    # Who comes after us, if we are killed now, has the same orphans to end.
    record = StackRecord(me.pid, me.started, me.boot, None, str(cert) if cert else None, tuple(orphans))
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


class Life:
    """One run of a child, from its start to its death."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.is_ready = False

    def end(self, well_after_s: float) -> Death:
        now = time.monotonic()
        return Death(now, self.is_ready and now - self._started >= well_after_s)


class Supervisor:
    def __init__(
        self, settings: Settings, record: StackRecord, listener: socket.socket, lifeline: Lifeline, tell: Tell
    ) -> None:
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
        self._environment = environment_of(settings)
        self._children = (
            Child(
                "api",
                ("api", "--listen-fd", str(listener.fileno()), "--lifeline-fd", str(lifeline.read_fd)),
                (listener.fileno(), lifeline.read_fd),
            ),
        )
        self._running: dict[str, anyio.abc.Process] = {}
        self._work = anyio.CancelScope()
        self._record = record
        self._is_recorded = False

    async def run(self) -> None:
        self._write_record()
        failures: BaseExceptionGroup[OutliveError] | None = None
        async with anyio.create_task_group() as outside:
            # Outside of the work that a signal ends: a second signal is heard while the first is obeyed.
            await outside.start(self._watch_signals)
            try:
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
                    for process in self._running.values():
                        process.kill()
                    continue
                self._tell(Notice("stopping", f"stopping ({number.name})", {"signal": number.name}))
                self._work.cancel()

    # ── one child ──

    async def _keep(self, child: Child) -> None:
        """Start it, and start it again when it dies, until that is enough."""
        # As many deaths as can matter: for the bound one more than are forgiven, for the delay one for each doubling.
        deaths: deque[Death] = deque(maxlen=max(self._policy.restarts, MOST_DOUBLINGS) + 1)
        for restarts in itertools.count():
            life = Life()
            try:
                exit_code = await self._run_once(child, restarts, life)
                how = say_exit(exit_code)
            except OSError as error:  # no process, no memory, no file left on this host; that may pass
                exit_code, how = 1, f"cannot be started: {error.strerror}"
            deaths.append(life.end(self._settings.supervisor.well_after_s))
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

    async def _run_once(self, child: Child, restarts: int, life: Life) -> int:
        """Run it to its end and say how it ended. Whoever cancels this ends it."""
        with anyio.CancelScope(shield=True):  # never half started
            process = await self._start(child)
        try:
            self._running[child.name] = process
            self._note(child, process.pid, restarts)
            self._tell(
                Notice(
                    "started", f"{child.name} started (pid {process.pid})", {"process": child.name, "pid": process.pid}
                )
            )
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch_ready, life)
                exit_code = await process.wait()
                group.cancel_scope.cancel()
            return exit_code
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            del self._running[child.name]

    async def _start(self, child: Child) -> anyio.abc.Process:
        log_path = self._log_path(child)
        rotate(log_path, self._settings.supervisor.log_bytes)
        with _open_log_or_none(log_path) as log:
            return await anyio.open_process(
                # -P: a file in the present folder never stands in for a module of ours.
                [sys.executable, "-P", "-m", "outlive", *child.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=child.descriptors,
                start_new_session=True,
            )

    def _note(self, child: Child, pid: int, restarts: int) -> None:
        found = proc.find(pid)
        others = tuple(each for each in self._record.children if each.name != child.name)
        mine = (ChildRecord(child.name, pid, found.started, restarts),) if found else ()
        self._record = replace(self._record, children=others + mine)
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
        """Note when what was started is ready, and say so."""
        while True:
            if (await anyio.to_thread.run_sync(self._probe, abandon_on_cancel=True)).is_ready:
                break
            await anyio.sleep(_PROBE_EVERY_S)
        life.is_ready = True
        self._tell(Notice("ready", f"ready at {self._url}", {"url": self._url, "pid": self._record.pid}))

    def _probe(self) -> Health:
        # The file is written by the API that we started, which listens on the socket that we hold.
        endpoint = read_endpoint(self._settings.endpoint_path)
        return probe(self._url, self._settings.api.tls_cert, endpoint.token if endpoint else None)

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


def _open_log_or_none(path: Path) -> BinaryIO:
    try:
        return open_log(path)
    except OSError:
        return open(os.devnull, "ab")


async def _end(process: anyio.abc.Process) -> None:
    """SIGTERM, a bound, SIGKILL. The process is gone when this returns."""
    if process.returncode is not None:
        return
    process.terminate()
    with anyio.move_on_after(GRACE_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def environment_of(settings: Settings) -> dict[str, str]:
    """What a child has to see to come to the same settings as we did, flags included. No secret is added."""
    ours = {f"{PREFIX}HOME": str(settings.home)}
    for name, value in settings.api.model_dump(mode="json", exclude_none=True, exclude={"token"}).items():
        ours[f"{PREFIX}API__{name.upper()}"] = value if isinstance(value, str) else json.dumps(value)
    return {**os.environ, **ours}


def _first(group: BaseExceptionGroup[OutliveError]) -> OutliveError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, OutliveError)
    return error
