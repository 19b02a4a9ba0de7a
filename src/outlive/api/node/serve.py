"""The listeners of a node: HTTP and raw connections, on two unix sockets (mode 0600) or two ports with TLS.

Listening and serving are apart, so that a node can say where it is before it is ready, and callers wait a moment
instead of being refused.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.abc
import uvicorn
from anyio.abc import TaskStatus
from anyio.streams.tls import TLSListener

from outlive.api.node.app import NodeApp
from outlive.api.node.splice import Splicing, Terminals
from outlive.base import ConflictError, InvalidError
from outlive.machine.door import MachineDoor
from outlive.machine.node_wire import NodeAddress

BACKLOG = 1_024
KEEP_ALIVE_S = 75  # longer than a caller keeps an idle connection: so it is the caller who closes
GRACE_S = 5


class NodeListeners(NamedTuple):
    http: socket.socket
    splice: socket.socket

    def close(self) -> None:
        self.http.close()
        self.splice.close()


def listen_for_node(address: NodeAddress) -> NodeListeners:
    """Both sockets of a node, listening. What a dead node left at a path is replaced: who calls is its only heir."""
    http = _listen(address)
    try:
        return NodeListeners(http, _listen(address.splice))
    except BaseException:
        http.close()
        raise


async def serve_node(
    door: MachineDoor,
    listeners: NodeListeners,
    token: str,
    *,
    terminals: Terminals | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    http_protocol: Any = "httptools",
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. Requests that are under way then get a few seconds. With a certificate: TLS."""
    config = uvicorn.Config(
        NodeApp(door, token, terminals),
        http=http_protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    server = _Server(config)
    raw: anyio.abc.Listener[anyio.abc.ByteStream] = await anyio.abc.SocketListener.from_socket(listeners.splice)
    if tls_cert is not None:
        raw = TLSListener(raw, _tls(tls_cert, tls_key), standard_compatible=False)
    async with raw, anyio.create_task_group() as group:
        group.start_soon(Splicing(door, token, terminals).serve, raw)
        group.start_soon(_serve_http, server, listeners.http)
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            server.should_exit = True


async def _serve_http(server: uvicorn.Server, listening: socket.socket) -> None:
    # Its end is ordered by `should_exit`, and bounded by the grace that it gives.
    with anyio.CancelScope(shield=True):
        await server.serve([listening])


class _Server(uvicorn.Server):
    """Without signal handlers of its own: the process has them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _tls(cert: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def _listen(address: NodeAddress) -> socket.socket:
    return _listen_unix(address.path) if address.path else _listen_tcp(address)


def _listen_unix(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound under another name and renamed, so that nobody ever meets it with other rights than 0600.
    waiting = f"{path}.new"
    try:
        Path(waiting).unlink(missing_ok=True)
        listening.bind(waiting)
        os.chmod(waiting, 0o600)
        listening.listen(BACKLOG)
        os.rename(waiting, path)
    except OSError as error:
        listening.close()
        raise InvalidError("node.bad_address", f"Cannot listen at {path!r}: {error.strerror or error}.") from None
    listening.setblocking(False)
    return listening


def _listen_tcp(address: NodeAddress) -> socket.socket:
    try:
        [(family, kind, protocol, _, place), *_] = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidError("node.bad_address", f"Cannot listen at {address}: {error.strerror}.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConflictError("node.address_taken", f"Cannot listen at {address}: {error.strerror}.") from None
    listening.setblocking(False)
    return listening
