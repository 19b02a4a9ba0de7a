"""`outlive worker` and `outlive node`: one process of a stack, alone. For many hosts, containers, other supervisors."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli.exit import FAILED
from outlive.cli.loading import loading
from outlive.cli.output import Json, print_json

if TYPE_CHECKING:
    from outlive.wiring.settings import Settings

LifelineFd = Annotated[int | None, typer.Option("--lifeline-fd", hidden=True)]
ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]


def add_commands(app: typer.Typer) -> None:
    app.command("worker")(worker)
    app.command("node")(node)


def worker(
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools", metavar="MODULE[:NAME]", help="Run the tools of a Python module of yours, and no turns."
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Task queue of these tools. Default: one that the modules' names give."
        ),
    ] = None,
    json: Json = False,
    lifeline_fd: LifelineFd = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run a Temporal worker alone, without a supervisor.

    It runs what has to happen in order and must not be forgotten: turns, and lifecycles of machines. Any number of them
    share the work. Logs are JSON lines on stderr. SIGTERM ends it within seconds; what it was doing is tried again
    elsewhere.

    With --tools it runs tools of your own instead: functions with @tool in a module that Python finds from this folder.
    It needs Temporal and the object store, and no database. Start it again to load changed tools.

    \b
    Examples:
      OUTLIVE_TEMPORAL__ADDRESS=temporal:7233 OUTLIVE_DATABASE__URL=postgresql://... outlive worker
      outlive worker --tools weather --tools acme.tools:billing
    """
    from outlive.wiring.settings import read_settings

    settings = read_settings()
    if tools:
        with loading():
            from outlive.processes import tool_worker

        tool_worker.main(settings, tools, queue, lifeline_fd, ready_fd)
        return
    if queue is not None:
        raise typer.BadParameter("goes with --tools", param_hint="--queue")
    with loading():
        from outlive.processes.worker import main

    main(settings, lifeline_fd, ready_fd)


def node(
    drain: Annotated[
        bool, typer.Option("--drain", help="Hibernate what a stopped node left running on this host, and end.")
    ] = False,
    json: Json = False,
    lifeline_fd: LifelineFd = None,
    ready_fd: ReadyFd = None,
) -> None:
    """Run the machines of this host, without a supervisor. Needs root and gVisor's runsc.

    One per host. Its machines survive it: started again, it finds them. Logs are JSON lines on stderr. To take a host
    out of service, stop its node and drain it: its machines then wake on other nodes.

    \b
    Examples:
      OUTLIVE_TEMPORAL__ADDRESS=temporal:7233 OUTLIVE_DATABASE__URL=postgresql://... outlive node
      outlive node --drain
    """
    from outlive.wiring.settings import read_settings

    settings = read_settings()
    if drain:
        _drain(settings, as_json=json)
    else:
        with loading():
            from outlive.processes.node import main

        main(settings, lifeline_fd, ready_fd)


def _drain(settings: "Settings", *, as_json: bool) -> None:
    from outlive.processes.drain import drain

    stuck = drain(settings, lambda text: print(f"outlive: {text}", file=sys.stderr))
    if as_json:
        print_json({"stuck": stuck})
    elif stuck:
        print(f"These could not be hibernated and go on running: {', '.join(stuck)}. Their node's log says why.")
    else:
        print("No machine runs on this host.")
    if stuck:
        raise typer.Exit(FAILED)
