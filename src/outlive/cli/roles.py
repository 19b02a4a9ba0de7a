"""`outlive worker` and `outlive node`: one process of a stack, alone. For many hosts, containers, other supervisors."""

from typing import Annotated

import typer

from outlive.cli.output import Json

LifelineFd = Annotated[int | None, typer.Option("--lifeline-fd", hidden=True)]
ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]


def add_commands(app: typer.Typer) -> None:
    app.command("worker")(worker)
    app.command("node")(node)


def worker(json: Json = False, lifeline_fd: LifelineFd = None, ready_fd: ReadyFd = None) -> None:
    """Run a Temporal worker alone, without a supervisor.

    It runs what has to happen in order and must not be forgotten: lifecycles of machines. Any number of them share the
    work. Logs are JSON lines on stderr. SIGTERM ends it within seconds; what it was doing is tried again elsewhere.

    \b
    Example:
      OUTLIVE_TEMPORAL__ADDRESS=temporal:7233 OUTLIVE_DATABASE__URL=postgresql://... outlive worker
    """
    from outlive.processes.worker import main
    from outlive.wiring.settings import read_settings

    main(read_settings(), lifeline_fd, ready_fd)


def node(json: Json = False, lifeline_fd: LifelineFd = None, ready_fd: ReadyFd = None) -> None:
    """Run the machines of this host, without a supervisor. Needs root and gVisor's runsc.

    One per host. Its machines survive it: started again, it finds them. Logs are JSON lines on stderr.

    \b
    Example:
      OUTLIVE_TEMPORAL__ADDRESS=temporal:7233 OUTLIVE_DATABASE__URL=postgresql://... outlive node
    """
    from outlive.processes.node import main
    from outlive.wiring.settings import read_settings

    main(read_settings(), lifeline_fd, ready_fd)
