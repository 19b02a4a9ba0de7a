"""The API process: from settings to a server, and in reverse at the end.

Order: socket, endpoint file, broker, parts, server. The socket comes first, so that a taken port is told before
anything is touched, and listens from then on: who connects while the rest starts waits a moment. At the end: no new
connections, streams end (`ApiParts.closing`), requests get `GRACE_S`, then the parts close. What hangs in its end is
ended.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.abc
import uvicorn

from outlive.api import FOLLOWERS_LIMIT, ApiParts, MachineParts, create_app
from outlive.loop.budgets.raising import Budgets
from outlive.processes.endpoint import Endpoint, publish
from outlive.processes.http_protocol import ProblemProtocol
from outlive.processes.lifeline import wait_for_end
from outlive.processes.listen import (
    BACKLOG,
    allowed_hosts,
    check_address,
    check_certificate,
    client_url,
    is_loopback,
    listen,
    url_of,
)
from outlive.processes.logs import log_to_stderr
from outlive.processes.record import is_locked
from outlive.wiring.api_machines import LateTemporal, open_machine_parts
from outlive.wiring.build import Parts, keep_broker, open_parts
from outlive.wiring.descriptors import take_descriptors
from outlive.wiring.loop_client import make_loop_client
from outlive.wiring.settings import Settings, prepare_home

GRACE_S = 5  # for requests that are under way when the end comes
HANG_S = 9.0  # from the first word of the end to the last; then the process is ended as it is

_OTHER_DESCRIPTORS = 256  # for databases, files and requests

_log = logging.getLogger(__name__)


def main(settings: Settings, listen_fd: int | None = None, lifeline_fd: int | None = None) -> None:
    """Serve until SIGTERM, SIGINT or the end of the lifeline. The descriptors are those a supervisor passes on."""
    os.umask(0o077)
    log_to_stderr()
    followers_limit = _make_room_for_followers()
    check_address(settings.api)
    check_certificate(settings.api)
    prepare_home(settings)
    listener = socket.socket(fileno=listen_fd) if listen_fd is not None else listen(settings.api)
    try:
        token = settings.api.token.get_secret_value() if settings.api.token else None
        url = client_url(settings.api, url_of(settings.api, listener))
        # Started by hand beside a stack, we are only a guest: clients go on using the stack's address.
        is_guest = listen_fd is None and is_locked(settings.run_path)
        endpoint = publish(settings.endpoint_path, settings.run_path, url, token, keeps_address=is_guest)
        if is_guest:
            _log.warning("a stack of this home runs: endpoint.json keeps its address", extra={"url": url})
        run = partial(_run, settings, listener, endpoint, lifeline_fd, followers_limit)
        anyio.run(run, backend_options={"use_uvloop": True})
    finally:
        listener.close()


def _make_room_for_followers() -> int:
    """How many followers there may be: each holds a descriptor, and other things need some too."""
    descriptors = take_descriptors()
    if descriptors >= FOLLOWERS_LIMIT + _OTHER_DESCRIPTORS:
        return FOLLOWERS_LIMIT
    limit = max(1, descriptors - _OTHER_DESCRIPTORS)
    _log.warning("at most %d open files: only %d followers instead of %d", descriptors, limit, FOLLOWERS_LIMIT)
    return limit


async def _run(
    settings: Settings, listener: socket.socket, endpoint: Endpoint, lifeline_fd: int | None, followers_limit: int
) -> None:
    async with anyio.create_task_group() as watchers:
        serving = _Serving()
        await watchers.start(_watch_signals, serving)
        if lifeline_fd is not None:
            watchers.start_soon(_watch_lifeline, lifeline_fd, serving)
        with serving.scope:
            await _serve(settings, listener, endpoint, serving, followers_limit)
        watchers.cancel_scope.cancel()
    _log.info("stopped")


async def _serve(
    settings: Settings, listener: socket.socket, endpoint: Endpoint, serving: "_Serving", followers_limit: int
) -> None:
    async with anyio.create_task_group() as background:
        if settings.has_local_feed:
            await background.start(keep_broker, settings)
        temporal = LateTemporal(settings)
        async with open_parts(settings) as parts, open_machine_parts(settings, parts, temporal) as machines:
            await parts.principals.ensure_owner(endpoint.token)
            made = _api_parts(settings, parts, machines, serving.closing, followers_limit)
            loop = None
            if settings.loop.enabled:
                loop = make_loop_client(temporal.connected, parts.conversations.blobs)
            app = create_app(replace(made, loop=loop))
            serving.server = _Server(_config(settings, app))
            _log.info("serving", extra={"url": endpoint.url, "home": str(settings.home)})
            await serving.server.serve([listener])
        background.cancel_scope.cancel()


def _api_parts(
    settings: Settings, parts: Parts, machines: MachineParts, closing: anyio.Event, followers_limit: int
) -> ApiParts:
    return ApiParts(
        conversations=parts.conversations,
        approvals=parts.approvals,
        budgets=Budgets(parts.conversations, parts.agents, parts.clock),
        artifacts=parts.artifacts,
        principals=parts.principals,
        idempotency=parts.idempotency,
        clock=parts.clock,
        allowed_hosts=allowed_hosts(settings.api),
        is_loopback=is_loopback(settings.api.host),
        readiness=parts.readiness,
        closing=closing,
        machines=machines,
        agents=parts.agents,
        races=parts.races,
        followers_limit=followers_limit,
    )


def _config(settings: Settings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ProblemProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nobody in front of us is trusted to say who is asking.
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=settings.api.tls_cert,
        ssl_keyfile=settings.api.tls_key,
    )


class _Server(uvicorn.Server):
    """Without signal handlers of its own: `_watch_signals` has them for the whole process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Serving:
    """What has to be told when the end comes."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.closing = anyio.Event()
        self.server: _Server | None = None

    def end(self, why: str) -> None:
        """End, in order and in time. Called again: at once."""
        _log.info("stopping", extra={"why": why})
        # A thread, not a task: it has to work when the event loop does not.
        watchdog = threading.Timer(HANG_S, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        if self.closing.is_set() or self.server is None:
            # Hurried, or still starting: there is nothing to finish.
            self.scope.cancel()
            return
        self.closing.set()
        self.server.should_exit = True


async def _watch_signals(serving: _Serving, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            serving.end(number.name)


async def _watch_lifeline(lifeline_fd: int, serving: _Serving) -> None:
    await wait_for_end(lifeline_fd)
    serving.end("the supervisor is gone")
