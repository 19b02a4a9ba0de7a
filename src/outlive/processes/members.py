"""Which processes a stack has on this host, and what each is told. In the order in which they are shown."""

import signal
import socket
from functools import partial

from outlive.processes import temporal_server
from outlive.processes.child import Child
from outlive.processes.endpoint import read_endpoint
from outlive.processes.lifeline import Lifeline
from outlive.processes.probe import probe
from outlive.wiring.settings import Settings

_OUTLIVE = ("-m", "outlive")


def members(
    settings: Settings,
    listener: socket.socket,
    url: str,
    lifeline: Lifeline,
    *,
    temporal_port: int | None,
    has_node: bool,
) -> tuple[Child, ...]:
    """`temporal_port`: of the embedded server, None if a cluster is used. `url`: of the API, on this host."""
    found = []
    lives = ("--lifeline-fd", str(lifeline.read_fd))
    if temporal_port is not None:
        found.append(_temporal(settings, temporal_port, lifeline))
    found.append(
        Child(
            "api",
            (*_OUTLIVE, "api", "--listen-fd", str(listener.fileno()), *lives),
            (listener.fileno(), lifeline.read_fd),
            is_ready=partial(_is_api_ready, settings, url),
        )
    )
    found.append(Child("worker", (*_OUTLIVE, "worker", *lives), (lifeline.read_fd,)))
    if has_node:
        found.append(Child("node", (*_OUTLIVE, "node", *lives), (lifeline.read_fd,)))
    return tuple(found)


def _temporal(settings: Settings, port: int, lifeline: Lifeline) -> Child:
    folder = settings.temporal_path
    return Child(
        "temporal",
        ("-m", temporal_server.__name__, str(folder), str(port), str(lifeline.read_fd)),
        (lifeline.read_fd,),
        is_ready=partial(temporal_server.is_listening, port),
        when_ready=partial(temporal_server.mark_whole, folder),
        # It would take a second to end by itself, and leaves the same files.
        end_with=signal.SIGKILL,
        ends_after=("api", "worker", "node"),
    )


def _is_api_ready(settings: Settings, url: str) -> bool:
    # The file is written by the API that we started, which listens on the socket that we hold.
    endpoint = read_endpoint(settings.endpoint_path)
    return probe(url, settings.api.tls_cert, endpoint.token if endpoint else None).is_ready
