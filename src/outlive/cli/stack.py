"""`outlive up`, `down`, `status` and `api`: the stack on this host."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from outlive.base import OutliveError
from outlive.cli.exit import UNAVAILABLE
from outlive.cli.loading import loading
from outlive.cli.output import Json, first_error, print_json

if TYPE_CHECKING:
    from outlive.processes.stack import StackStatus
    from outlive.processes.supervisor import Notice
    from outlive.wiring.settings import Places, Settings

Port = Annotated[int | None, typer.Option("--port", help="Port of the API; 0 takes a free one. Default 8484.")]
Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on. Default 127.0.0.1; another one needs TLS.")
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", help="Certificate (PEM): the API speaks HTTPS.")]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="Private key of the certificate (PEM).")]
Cleartext = Annotated[
    bool,
    typer.Option(
        "--allow-cleartext-network",
        help="Listen on a network address without TLS. The token, and everything that is said, then crosses the "
        "network readable by anyone on the path, who can act as you with it.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("api")(api)


def up(
    port: Port = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all is ready; the stack runs on in the background.")
    ] = False,
    host: Host = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    allow_cleartext_network: Cleartext = False,
    json: Json = False,
    report_fd: Annotated[int | None, typer.Option("--report-fd", hidden=True)] = None,
) -> None:
    """Start the stack on this host and keep it running.

    What dies is started again; what keeps dying stops everything, with a last word. Ctrl-C stops.

    \b
    Examples:
      outlive up                    in the foreground, on port 8484
      outlive up --detach           in the background; returns when ready
      outlive up --port 0 --detach  on a free port (see: outlive status)
      OUTLIVE_HOME=/srv/two outlive up --port 8500 --detach   a second stack beside the first
    """
    settings = _settings(port, host, tls_cert, tls_key, allow_cleartext_network)
    if detach:
        _up_detached(settings, port, as_json=json)
    else:
        _up_here(settings, as_json=json, report_fd=report_fd)


def _up_detached(settings: "Settings", port: int | None, *, as_json: bool) -> None:
    from outlive.processes.stack import start_detached

    started = start_detached(settings)
    if started.was_running and port and port != urlsplit(started.url).port:
        print(
            f"It runs at {started.url}, not on port {port}. To move it: outlive down, then outlive up --port {port}",
            file=sys.stderr,
        )
    if as_json:
        print_json({"url": started.url, "pid": started.pid, "already_running": started.was_running})
    elif started.was_running:
        print(f"Outlive is already running at {started.url} (pid {started.pid}).")
    else:
        print(f"Outlive is ready at {started.url} (pid {started.pid}).\nStop it with: outlive down")


def _up_here(settings: "Settings", *, as_json: bool, report_fd: int | None) -> None:
    with loading():
        from outlive.processes.stack import report_failure, report_ready
        from outlive.processes.supervisor import supervise

    pipe = os.fdopen(report_fd, "wb") if report_fd is not None else None

    def tell(notice: "Notice") -> None:
        # Nobody reads it, or the disk is full: whoever waits on the pipe is still told.
        with suppress(OSError):
            if as_json:
                print_json({"event": notice.event, **notice.facts})
            else:
                print(_line(notice, is_detached=pipe is not None), flush=True)
        if pipe is not None and notice.event == "ready":
            report_ready(pipe, notice)

    try:
        supervise(settings, tell)
    except OutliveError as error:
        if pipe is not None:
            report_failure(pipe, error)
        raise


def _line(notice: "Notice", *, is_detached: bool) -> str:
    hint = "  (Ctrl-C stops)" if notice.event == "ready" and not is_detached else ""
    return f"outlive: {notice.text}{hint}"


def down(json: Json = False) -> None:
    """Stop the stack and wait until nothing of it is left. Machines that run are hibernated first, so that they come
    back as they were. Nothing running: says so, and is done.

    \b
    Example:
      outlive down
    """
    from outlive.wiring.settings import find_home

    ended = bring_down(find_home())
    if json:
        print_json({"ended": ended})
    elif ended:
        print(f"Outlive is stopped ({len(ended)} processes ended).")
    else:
        print("Outlive was not running.")


def bring_down(home: "Places") -> list[int]:
    """Hibernate the machines, then end every process; returns the pids that were alive."""
    from outlive.processes.hibernate import HIBERNATE_WITHIN_S, hibernate_all
    from outlive.processes.stack import stop

    hibernate_all(home, _say, HIBERNATE_WITHIN_S)
    ended = stop(home)
    _drain_what_is_left()
    return ended


def _drain_what_is_left() -> None:
    """Machines that the stack could not be asked to hibernate, since it was dead, or that a person has paused."""
    from outlive.processes.drain import drain
    from outlive.wiring.node import has_leftovers
    from outlive.wiring.settings import read_settings

    try:
        settings = read_settings()
        if os.geteuid() == 0 and has_leftovers(settings.node_path):
            for machine in drain(settings, _say):
                _say(f"{machine} could not be hibernated and goes on running; outlive up finds it again")
    # The stack is stopped, and that is what was asked for: what goes wrong here is only said.
    except OutliveError as error:
        _say(f"machines may still run here: {error.message}")
    except BaseExceptionGroup as group:
        ours = first_error(group)
        if ours is None:
            raise
        _say(f"machines may still run here: {ours.message}")


def _say(text: str) -> None:
    print(f"outlive: {text}", file=sys.stderr)


def status(json: Json = False) -> None:
    """Say how the stack is: its processes, its address, its health. Exits with 0 if it is well, else with 5.

    \b
    Examples:
      outlive status
      outlive status --json
    """
    from outlive.processes import stack
    from outlive.wiring.settings import find_home

    found = stack.status(find_home())
    if json:
        print_json(_document(found))
    else:
        print(_text(found))
    if not found.is_healthy:
        raise typer.Exit(UNAVAILABLE)


def _document(found: "StackStatus") -> dict[str, object]:
    return {
        "running": found.is_running,
        "healthy": found.is_healthy,
        "url": found.url,
        "health": {"ready": found.health.is_ready, "detail": found.health.detail, "answer": found.health.body},
        "counts": found.counts,
        "machines": {"on": found.is_running and found.machines_off is None, "why_not": found.machines_off},
        "processes": [
            {
                "name": each.name,
                "pid": each.pid,
                "alive": each.is_alive,
                "uptime_s": None if each.uptime_s is None else round(each.uptime_s, 1),
                "restarts": each.restarts,
            }
            for each in found.processes
        ],
    }


def _text(found: "StackStatus") -> str:
    if not found.is_running:
        return "Outlive is not running. Start it with: outlive up"
    where = f" at {found.url}" if found.url else ""
    lines = [f"Outlive{where}: {'healthy' if found.is_healthy else 'NOT healthy'} ({found.health.detail})"]
    lines += [f"  {name.replace('_', ' ')}: {number}" for name, number in found.counts.items()]
    for each in found.processes:
        state = f"up {_duration(each.uptime_s)}" if each.uptime_s is not None else "dead"
        lines.append(f"  {each.name:<12} pid {each.pid:<8} {state:<12} restarts {each.restarts}")
    if found.machines_off is not None:
        lines.append(f"  machines are off: {found.machines_off}")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def api(
    port: Port = None,
    host: Host = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    allow_cleartext_network: Cleartext = False,
    json: Json = False,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
    lifeline_fd: Annotated[int | None, typer.Option("--lifeline-fd", hidden=True)] = None,
) -> None:
    """Run the API alone, without a supervisor.

    For many hosts, containers and other supervisors. Logs are JSON lines on stderr. SIGTERM ends it within seconds.

    \b
    Examples:
      outlive api --port 8484
      OUTLIVE_DATABASE__URL=postgresql://... OUTLIVE_FEED__URL=redis://... outlive api --host 0.0.0.0 \\
          --tls-cert cert.pem --tls-key key.pem
    """
    with loading():
        from outlive.processes.api import main

    main(_settings(port, host, tls_cert, tls_key, allow_cleartext_network), listen_fd, lifeline_fd)


def _settings(
    port: int | None, host: str | None, tls_cert: Path | None, tls_key: Path | None, cleartext: bool
) -> "Settings":
    from outlive.wiring.settings import read_settings

    flags = {
        "port": port,
        "host": host,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "allow_cleartext_network": cleartext or None,
    }
    return read_settings({"api": flags})
