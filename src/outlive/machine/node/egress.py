"""The way out of a resident: its own socket beside the guest's, served by a proxy with the rules of its environment.

Rule: nothing goes out before the records say that this generation is the machine. A wake that was tried again may have
two of them for a moment, restored from the same memory; what the wrong one would say outside is said by nobody.
"""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from outlive.governance.egress import parse_rules
from outlive.governance.egress_proxy import EgressProxy, listen_for_egress
from outlive.machine.node.parts import NodeParts
from outlive.machine.sandbox import Sandbox
from outlive.machine.status import Machine

SOCKET = "egress.sock"


@asynccontextmanager
async def open_egress(
    parts: NodeParts, record: Machine, sandbox: Sandbox, *, after: anyio.Event
) -> AsyncIterator[EgressProxy]:
    """Serve while inside, from the moment that `after` is set: who connects before it waits. Leaving ends every
    connection of the machine to the outside."""
    proxy = EgressProxy(
        record.id,
        parse_rules(record.spec.egress),
        parts.egress_record,
        dialer=parts.egress.new_dialer(),
        clock=parts.clock,
        places=parts.egress.places,
    )
    # A socket's path ends at 107 bytes; through an open directory it is short however deep the place is.
    folder = os.open(sandbox.host_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener = listen_for_egress(Path(f"/proc/self/fd/{folder}/{SOCKET}"))
    finally:
        os.close(folder)
    async with anyio.create_task_group() as group:
        group.start_soon(_serve, proxy, listener, after)
        yield proxy
        group.cancel_scope.cancel()


async def _serve(proxy: EgressProxy, listener: socket.socket, after: anyio.Event) -> None:
    with listener:
        await after.wait()
        await proxy.serve(listener)
