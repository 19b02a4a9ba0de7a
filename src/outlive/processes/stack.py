"""The stack seen from outside: starting it detached, ending it, and saying how it is.

Detached: the supervisor runs in a session of its own with no descriptor of the caller's. It reports once, over a pipe,
that all is ready or why not; the end of the pipe without a report means that it died.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from outlive.base import KINDS, BrokenError, ConflictError, DeadlineError, OutliveError
from outlive.processes import proc
from outlive.processes.child import GRACE_S
from outlive.processes.endpoint import read_endpoint
from outlive.processes.logs import open_log, rotate, tail
from outlive.processes.probe import Health, count, probe
from outlive.processes.record import StackRecord, hold_lock, is_locked, read_record, read_running, remove_record
from outlive.processes.supervisor import LAST_LINES, Notice, environment_of
from outlive.wiring.settings import Places, Settings, prepare_home

READY_WITHIN_S = 60.0
_REPORT_LIMIT = 64 * 1024
_RECORD_WITHIN_S = 5.0  # from a supervisor's lock to its record; in truth milliseconds
_POLL_S = 0.05


@dataclass(frozen=True)
class Started:
    url: str
    pid: int
    was_running: bool


# ── the supervisor's side of the pipe ──


def report_ready(pipe: BinaryIO, notice: Notice) -> None:
    """Say that all is ready. If nobody waits for it any more (whoever started us was ended), stop again: a start that
    nobody was told of must not leave anything running."""
    if not _report(pipe, {"ready": notice.facts}):
        os.kill(os.getpid(), signal.SIGTERM)


def report_failure(pipe: BinaryIO, error: OutliveError) -> None:
    _report(pipe, {"problem": {"kind": error.kind, "code": error.code, "detail": error.message}})


def _report(pipe: BinaryIO, report: Mapping[str, object]) -> bool:
    if pipe.closed:
        return True  # it was told before
    try:
        pipe.write(json.dumps(report).encode() + b"\n")
        pipe.close()
    except OSError:
        return False
    return True


# ── the caller's side ──


def start_detached(settings: Settings, within_s: float = READY_WITHIN_S) -> Started:
    """Start the stack and return when it is ready. If it does not get there, nothing of it is left."""
    prepare_home(settings)
    deadline = time.monotonic() + within_s
    while True:
        if read_running(settings.run_path) is None:
            try:
                return _launch(settings, max(1.0, deadline - time.monotonic()))
            except ConflictError as error:
                # Another `up` was faster: wait for that one.
                if error.code != "stack.running" or time.monotonic() > deadline:
                    raise
        elif started := _await_running(settings, deadline):
            return started


def _await_running(settings: Settings, deadline: float) -> Started | None:
    """Wait until the stack that runs is ready; None if it has ended meanwhile."""
    detail = "it is starting"
    while (running := read_running(settings.run_path)) is not None:
        if running.url is not None:
            health = probe(running.url, running.tls_path, _token(settings))
            if health.is_ready:
                return Started(running.url, running.pid, was_running=True)
            detail = health.detail
        if time.monotonic() > deadline:
            raise DeadlineError("stack.not_ready", f"Outlive is running, but did not become ready: {detail}.")
        time.sleep(_POLL_S)
    return None


def _launch(settings: Settings, within_s: float) -> Started:
    log_path = settings.logs_path / "up.log"
    rotate(log_path, settings.supervisor.log_bytes)
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb") as pipe, open_log(log_path) as log:
        begin = log.tell()
        try:
            supervisor = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", "outlive", "up", "--report-fd", str(write_fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of(settings),
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        finally:
            os.close(write_fd)
        try:
            report = _await_report(pipe, within_s)
        except BaseException:
            # Ctrl-C here, or too late: nothing is left running.
            _stop(supervisor)
            raise
    if "ready" in report:
        # It lives on without us; Popen would complain about that when it is collected.
        supervisor.returncode = 0
        return Started(str(report["ready"]["url"]), int(report["ready"]["pid"]), was_running=False)
    _stop(supervisor)
    if "problem" in report:
        raise _rebuild(report["problem"])
    lines = "\n".join(f"  | {line}" for line in tail(log_path, LAST_LINES, begin))
    raise BrokenError("stack.died", f"The supervisor died before all was ready. The last lines of {log_path}:\n{lines}")


def _await_report(pipe: BinaryIO, within_s: float) -> dict[str, dict[str, str | int]]:
    """The report, or an empty one if the supervisor ended without."""
    deadline = time.monotonic() + within_s
    received = b""
    while not received.endswith(b"\n") and len(received) < _REPORT_LIMIT:
        readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise DeadlineError(
                "stack.not_ready", f"Outlive was not ready after {within_s:g} s, and was stopped. See its logs folder."
            )
        piece = os.read(pipe.fileno(), _REPORT_LIMIT)
        if not piece:
            break
        received += piece
    try:
        report: dict[str, dict[str, str | int]] = json.loads(received)
    except ValueError:
        return {}
    return report


def _stop(supervisor: "subprocess.Popen[bytes]") -> None:
    supervisor.terminate()
    try:
        supervisor.wait(2 * GRACE_S + 2)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def _rebuild(problem: Mapping[str, str | int]) -> OutliveError:
    kinds = {kind.kind: kind for kind in OutliveError.__subclasses__()}
    assert set(kinds) == set(KINDS)
    kind = next(kinds[kind] for kind in KINDS if kind == problem["kind"])
    return kind(str(problem["code"]), str(problem["detail"]))


# ── ending ──


def stop(home: Places, grace_s: float = GRACE_S) -> list[int]:
    """End the supervisor and everything it started, also what a killed one left. Returns the pids that were alive."""
    record = _await_record(home.run_path)
    if record is None:
        return []
    children = [record.process_of(child) for child in record.children]
    alive = [process for process in (record.supervisor, *children) if proc.is_alive(process)]
    if record.is_running:
        proc.send(record.supervisor, signal.SIGTERM)
        # Twice: what the others need ends after them.
        if not proc.wait_gone([record.supervisor], 2 * grace_s + 5):
            proc.send(record.supervisor, signal.SIGKILL)
            proc.wait_gone([record.supervisor], grace_s)
    # It may have restarted something since we looked; its record, if it is still its own, says what there is now.
    now = read_record(home.run_path)
    if now is not None and now.supervisor == record.supervisor:
        record = now
    orphans = [record.process_of(child) for child in record.children]
    alive += [process for process in proc.end(orphans, grace_s=grace_s) if process not in alive]
    _forget(home.run_path, record)
    return [process.pid for process in alive]


def _await_record(run_path: Path) -> StackRecord | None:
    """The record; of a supervisor that has the lock but has not written its own yet, that one, after a moment."""
    deadline = time.monotonic() + _RECORD_WITHIN_S
    while read_running(run_path) is None and is_locked(run_path) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return read_record(run_path)


def _forget(run_path: Path, record: StackRecord) -> None:
    """Remove the record of a supervisor that is gone, and no other's."""
    with suppress(ConflictError), hold_lock(run_path):
        now = read_record(run_path)
        if now is not None and now.supervisor == record.supervisor:
            remove_record(run_path)


# ── saying how it is ──


@dataclass(frozen=True)
class ProcessStatus:
    name: str
    pid: int
    is_alive: bool
    uptime_s: float | None
    restarts: int


@dataclass(frozen=True)
class StackStatus:
    is_running: bool
    url: str | None
    health: Health
    processes: tuple[ProcessStatus, ...]
    counts: dict[str, int]
    machines_off: str | None = None  # why it runs no machines

    @property
    def is_healthy(self) -> bool:
        return self.is_running and self.health.is_ready


def status(home: Places) -> StackStatus:
    record = read_record(home.run_path)
    if record is None:
        return StackStatus(False, None, Health(False, "not running"), (), {})
    processes = [("supervisor", record.supervisor, 0)]
    processes += [(child.name, record.process_of(child), child.restarts) for child in record.children]
    shown = tuple(_status_of(name, process, restarts) for name, process, restarts in processes)
    if not record.is_running:
        return StackStatus(False, None, Health(False, "not running"), shown, {})
    if record.url is None:
        return StackStatus(True, None, Health(False, "starting"), shown, {}, record.machines_off)
    where = (record.url, record.tls_path, _token(home))
    health = probe(*where)
    counts = count(*where) if health.is_ready else {}
    return StackStatus(True, record.url, health, shown, counts, record.machines_off)


def _status_of(name: str, process: proc.Process, restarts: int) -> ProcessStatus:
    is_alive = proc.is_alive(process)
    return ProcessStatus(name, process.pid, is_alive, proc.uptime_s(process) if is_alive else None, restarts)


def _token(home: Places) -> str | None:
    endpoint = read_endpoint(home.endpoint_path)
    return endpoint.token if endpoint else None
