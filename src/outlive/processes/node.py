"""The node process: owns the machines of this host. They outlive it.

Order of its start: no other node runs here, the door is open, the lease is taken (until then nothing runs here if the
last one is over), sandboxes are found again, then steps are taken from Temporal. At its end the same in reverse; the
sandboxes stay. The door comes after the first: it replaces the sockets that are there.
"""

import logging
import os

import anyio
import anyio.abc

from outlive.api.node.serve import listen_for_node, serve_node
from outlive.base import SystemClock
from outlive.machine.activities import NodeActivities
from outlive.machine.node.door import NodeDoor
from outlive.machine.node.node import Node, open_node
from outlive.machine.node.strays import watch_strays
from outlive.machine.node.terminal_door import NodeTerminalDoor
from outlive.machine.node.watch import keep_lease, watch_residents
from outlive.machine.node_wire import parse_address
from outlive.machine.queues import CREATE, node_queue
from outlive.machine.status import Node as NodeRecord
from outlive.processes.ending import open_ending
from outlive.processes.listen import check_certificate
from outlive.processes.logs import log_to_stderr
from outlive.processes.ready import tell_ready
from outlive.wiring.build import open_object_store, open_stores
from outlive.wiring.descriptors import take_descriptors
from outlive.wiring.machines import make_settler
from outlive.wiring.node import open_node_parts
from outlive.wiring.node_token import ensure_node_token
from outlive.wiring.places import places_tuner
from outlive.wiring.settings import Settings, prepare_home
from outlive.wiring.temporal import connect_temporal
from outlive.wiring.temporal_worker import make_worker, run_until_shut, shut

_log = logging.getLogger(__name__)


def main(settings: Settings, lifeline_fd: int | None = None, ready_fd: int | None = None) -> None:
    """Run until SIGTERM, SIGINT or the end of the lifeline. The descriptors are those a supervisor passes on."""
    os.umask(0o077)
    log_to_stderr()
    take_descriptors()
    check_certificate(settings.node)
    prepare_home(settings)
    anyio.run(run_node, settings, lifeline_fd, ready_fd, backend_options={"use_uvloop": True})


async def run_node(settings: Settings, lifeline_fd: int | None = None, ready_fd: int | None = None) -> None:
    async with open_ending(lifeline_fd) as ending, anyio.create_task_group() as group:
        group.start_soon(_serve, settings, ready_fd)
        await ending.wait()
        group.cancel_scope.cancel()
    _log.info("stopped")


async def _serve(settings: Settings, ready_fd: int | None) -> None:
    clock = SystemClock()
    client = await connect_temporal(settings)
    async with open_stores(settings, clock) as stores:
        objects = await open_object_store(settings)
        async with (
            open_node_parts(settings, stores, objects, make_settler(client), clock) as parts,
            parts.sandboxes.guarded() as guard,
            open_node(parts, is_adopting=False) as node,
        ):
            address = settings.node.address or f"unix:{settings.node_socket_path}"
            now = clock.now()
            record = NodeRecord(id=parts.node, address=address, lease_until=now, started_at=now)
            activities = NodeActivities(node)
            workers = [
                make_worker(
                    client,
                    CREATE,
                    settings,
                    activities=activities.placed,
                    asks_once=True,
                    tuner=places_tuner(node.has_room_besides),
                ),
                make_worker(client, node_queue(parts.node), settings, activities=activities.own),
            ]
            async with anyio.create_task_group() as group:
                await group.start(_serve_door, settings, node, address)
                await group.start(keep_lease, node, guard, record)
                await node.adoption.adopt()
                group.start_soon(watch_residents, node)
                group.start_soon(watch_strays, node)
                for worker in workers:
                    group.start_soon(run_until_shut, worker)
                try:
                    _log.info("serving", extra={"node": parts.node, "machines": len(node.residents)})
                    tell_ready(ready_fd)
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        async with anyio.create_task_group() as shutting:
                            for worker in workers:
                                shutting.start_soon(shut, worker, settings.worker.grace_s)


async def _serve_door(settings: Settings, node: Node, address: str, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    listeners = listen_for_node(parse_address(address))
    try:
        await serve_node(
            NodeDoor(node),
            listeners,
            ensure_node_token(settings),
            terminals=NodeTerminalDoor(node),
            tls_cert=settings.node.tls_cert,
            tls_key=settings.node.tls_key,
            task_status=task_status,
        )
    finally:
        listeners.close()
