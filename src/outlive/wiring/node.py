"""From settings to a node. See `wiring.build` for the parts that all processes share."""

import hashlib
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio.to_thread

from outlive.base import Clock, NodeId, UnavailableError, is_id, new_node_id
from outlive.governance.egress_records import open_egress_recording
from outlive.governance.egress_shared import open_shared_egress
from outlive.machine.backends.bases.provider import CachedBases
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.keeper import Settler
from outlive.machine.node.idle import IdlePolicy
from outlive.machine.node.parts import HostFacts, NodeLimits, NodeParts
from outlive.storage.objects import ObjectStore
from outlive.wiring.build import Stores
from outlive.wiring.descriptors import descriptor_limit
from outlive.wiring.screens import open_screens
from outlive.wiring.settings import Settings

_DESCRIPTORS_PER_CONNECTION = 4  # of a machine to the outside: it takes two, and half of all are for the rest
_VERSION_WITHIN_S = 10.0
_PLATFORM = "systrap"


@asynccontextmanager
async def open_node_parts(
    settings: Settings, stores: Stores, objects: ObjectStore, settler: Settler, clock: Clock
) -> AsyncIterator[NodeParts]:
    async with AsyncExitStack() as stack:
        given = settings.machines
        connections = descriptor_limit() // _DESCRIPTORS_PER_CONNECTION
        yield NodeParts(
            node=await anyio.to_thread.run_sync(ensure_node_id, settings.node_path),
            path=settings.node_path,
            machines=stores.machines,
            effects=stores.effects,
            nodes=stores.nodes,
            checkpoints=stores.checkpoints,
            store=CheckpointStore(objects),
            objects=objects,
            sandboxes=open_gvisor_sandboxes(settings.node_path, cgroup_name(settings.node_path), given.runsc),
            bases=CachedBases(given.cache / "bases", given.cache / "runtimes"),
            settler=settler,
            egress_record=await stack.enter_async_context(open_egress_recording(stores.egress)),
            egress=stack.enter_context(open_shared_egress(connections, given.limit)),
            host=await anyio.to_thread.run_sync(read_host_facts, given.runsc),
            clock=clock,
            terminals=stores.terminals,
            screens=await anyio.to_thread.run_sync(open_screens),
            limits=NodeLimits(machines=given.limit),
            idle=IdlePolicy(given.freeze_after_s or None, given.hibernate_after_s or None),
            checkpoint_every_s=given.checkpoint_every_s or None,
            lease_s=settings.node.lease_s,
            beat_s=settings.node.heartbeat_s,
        )


def ensure_node_id(path: Path) -> NodeId:
    """Who this node is: made once, kept with its sandboxes, so that it finds them again under the same name."""
    place = path / "id"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = place.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = new_node_id()
        fresh = path / f".id.{secrets.token_hex(4)}"
        fresh.write_text(found, encoding="ascii")
        fresh.rename(place)
    if not is_id(found, "node"):
        raise UnavailableError("node.bad_id", f"{str(place)!r} holds no node's id: restore it, or remove it.")
    return NodeId(found)


def find_node_id(path: Path) -> NodeId | None:
    """The same of a node that may never have been here: then there is none, and none is made."""
    try:
        found = (path / "id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return NodeId(found) if is_id(found, "node") else None


def cgroup_name(path: Path) -> str:
    """Below which this node's cgroups are; nodes of different homes do not meet there."""
    return f"outlive/{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def read_host_facts(runsc: str) -> HostFacts:
    try:
        said = subprocess.run(  # noqa: S603
            [runsc, "--version"], capture_output=True, text=True, timeout=_VERSION_WITHIN_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError("sandbox.no_runsc", f"runsc does not say its version: {error}.") from None
    version = said.partition("\n")[0].removeprefix("runsc version ").strip()
    return HostFacts(version, _PLATFORM, _cpu_features(Path("/proc/cpuinfo").read_text()))


def _cpu_features(cpuinfo: str) -> tuple[str, ...]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return tuple(sorted(value.split()))
    return ()


def has_leftovers(path: Path) -> bool:
    """Whether any sandbox has left anything in this node's folder."""
    return any((path / "machines").glob("*/*"))
