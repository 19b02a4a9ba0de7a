"""`outlive doctor`: look at every part, and say how to mend what is not well. Leaves nothing behind."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import typer

from outlive.base import OutliveError
from outlive.cli.doctor_machines import examine_machines
from outlive.cli.exit import FAILED
from outlive.cli.findings import Finding, Level, inspect
from outlive.cli.output import Json, print_json

if TYPE_CHECKING:
    from outlive.processes.stack import StackStatus
    from outlive.wiring.settings import Settings

_PYTHON = (3, 11)
_DISK_WARN = 1024**3
_DISK_FAIL = 100 * 1024**2
_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def add_commands(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(json: Json = False) -> None:
    """Check every part and say how to mend it. Exits with 1 if something has failed.

    Where machines can run, one sandbox is booted and destroyed, which takes about a second.

    \b
    Examples:
      outlive doctor
      outlive doctor --json
    """
    findings = list(_examine())
    has_failed = any(finding.level == "fail" for finding in findings)
    if json:
        print_json({"ok": not has_failed, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            print(f"{_MARKS[finding.level]} {finding.name:<10} {finding.detail}")
            if finding.mend:
                print(f"{'':<16}-> {finding.mend}")
    if has_failed:
        raise typer.Exit(FAILED)


def _examine() -> Iterator[Finding]:
    from outlive.processes import stack
    from outlive.wiring import inspection
    from outlive.wiring.settings import read_settings

    yield _python()
    yield inspect("sqlite", inspection.inspect_sqlite, "use a Python whose SQLite is new and has FTS5")
    try:
        settings = read_settings()
    except OutliveError as error:
        yield Finding("settings", "fail", error.message, "correct it, then run outlive doctor again")
        return
    yield Finding("settings", "ok", f"home is {settings.home}")
    yield _home(settings)
    if not settings.home.is_dir():
        return
    yield _disk(settings)
    found = stack.status(settings)
    yield _endpoint(settings, found)
    yield _port(settings, found)
    yield _api(found)
    mend = "check the setting {}.url and what it points to"
    yield inspect("database", partial(inspection.inspect_database, settings), mend.format("database"))
    inspect_feed = partial(inspection.inspect_feed, settings, is_running=found.is_running)
    yield inspect("feed", inspect_feed, mend.format("feed"))
    yield inspect("objects", partial(inspection.inspect_objects, settings), mend.format("objects"))
    yield _temporal(settings, found)
    yield from examine_machines(settings, found)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON:
        return Finding("python", "fail", f"Python {version}", "install Python 3.11 or newer")
    return Finding("python", "ok", f"Python {version}")


def _home(settings: "Settings") -> Finding:
    home = settings.home
    if not home.exists():
        return Finding("home", "warn", f"{home} is not there yet", "outlive up makes it")
    if not home.is_dir():
        return Finding("home", "fail", f"{home} is not a folder", "move it away, or set OUTLIVE_HOME")
    if not os.access(home, os.W_OK | os.X_OK):
        return Finding("home", "fail", f"{home} cannot be written", f"chown {os.geteuid()} {home}, or set OUTLIVE_HOME")
    for path in (home, settings.run_path):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            return Finding("home", "warn", f"{path} is open to other users", f"chmod 700 {path}")
    return Finding("home", "ok", f"{home} is writable and closed to others")


def _disk(settings: "Settings") -> Finding:
    free = shutil.disk_usage(settings.home).free
    level: Level = "ok" if free >= _DISK_WARN else "warn" if free >= _DISK_FAIL else "fail"
    mend = None if level == "ok" else "make room on the disk that holds home"
    return Finding("disk", level, f"{free / 1024**3:.1f} GiB free", mend)


def _endpoint(settings: "Settings", found: "StackStatus") -> Finding:
    from outlive.processes.endpoint import read_endpoint
    from outlive.processes.listen import client_url

    path = settings.endpoint_path
    if not path.exists():
        return Finding("endpoint", "warn", f"{path} is not there yet", "outlive up writes it")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding("endpoint", "fail", f"{path} holds the token and is open to others", f"chmod 600 {path}")
    endpoint = read_endpoint(path)
    if endpoint is None:
        return Finding("endpoint", "fail", f"{path} is damaged", f"rm {path}; outlive up makes a new token")
    if found.url and endpoint.url not in (found.url, client_url(settings.api, found.url)):
        detail = f"{path} names {endpoint.url}, but the stack is at {found.url}: clients do not find it"
        return Finding("endpoint", "fail", detail, "outlive down, then outlive up --detach: it writes the file again")
    return Finding("endpoint", "ok", f"{path} is yours alone")


def _port(settings: "Settings", found: "StackStatus") -> Finding:
    from outlive.processes.listen import check_address, check_certificate, listen

    if found.is_running:
        return Finding("port", "ok", f"in use by this stack ({found.url})")
    try:
        check_address(settings.api)
        check_certificate(settings.api)
        listen(settings.api).close()
    except OutliveError as error:
        return Finding("port", "fail", error.message)
    return Finding("port", "ok", f"{settings.api.host}:{settings.api.port} is free")


def _api(found: "StackStatus") -> Finding:
    if not found.is_running:
        return Finding("api", "warn", "not running", "outlive up --detach")
    if not found.is_healthy:
        mend = "see logs/api.log under home; outlive down, then outlive up"
        return Finding("api", "fail", f"{found.health.detail} {found.health.body or ''}".strip(), mend)
    return Finding("api", "ok", f"ready at {found.url}")


def _temporal(settings: "Settings", found: "StackStatus") -> Finding:
    from outlive.processes.temporal_server import ask_version, find_program
    from outlive.wiring.inspection import inspect_temporal

    mend = "see logs/temporal.log and logs/worker.log under home; outlive down, then outlive up"
    if settings.temporal.is_embedded:
        try:
            version = ask_version(find_program())
        except OutliveError as error:
            return Finding("temporal", "fail", error.message)
        if not found.is_running:
            return Finding("temporal", "ok", f"embedded, version {version}: run by outlive up")
    else:
        mend = "check the settings temporal.address, temporal.namespace and its TLS"
    return inspect("temporal", partial(inspect_temporal, settings, has_worker=found.is_running), mend)
