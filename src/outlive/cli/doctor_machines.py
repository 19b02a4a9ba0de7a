"""The part of `outlive doctor` that is about machines: what this host needs for them, and whether its node lives."""

import http.client
import json
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from outlive.base import OutliveError
from outlive.cli.findings import Finding, Level, inspect, look

if TYPE_CHECKING:
    from outlive.processes.stack import StackStatus
    from outlive.wiring.settings import Settings

_OLD_MONTHS = 12
_GET_RUNSC = (
    "install gVisor's runsc: scripts/setup does, from Debian; gVisor's own releases and apt repository have newer"
)
_NEWER_RUNSC = (
    "holes in the sandbox that gVisor has mended since are open here: take a newer runsc from gVisor's own releases or "
    "apt repository (gvisor.dev, Installation). Machines that another version saved wake with their files alone"
)
_MAKE_BASE = "outlive base ensure (as root; else the first machine waits for it)"
_NO_NODE = "see logs/node.log under home; outlive down, then outlive up"


def examine_machines(settings: "Settings", found: "StackStatus") -> Iterator[Finding]:
    from outlive.processes.machines import look_for_machines

    try:
        machines = look_for_machines(settings)
    except OutliveError as error:
        yield Finding("machines", "fail", error.message)
        yield from _host(settings, "fail")
        return
    if settings.machines.enabled == "off":
        yield Finding("machines", "ok", f"off: {machines.why}")
    elif not machines.is_on:
        yield Finding("machines", "warn", f"off: {machines.why}", "mend what follows, or use another host")
        yield from _host(settings, "warn")
    else:
        yield Finding("machines", "ok", f"can run here {machines.why}")
        yield from _host(settings, "fail")
        yield _trial(settings)
        if found.is_running:
            yield _node(settings, found)


def _host(settings: "Settings", bad: Level) -> Iterator[Finding]:
    from outlive.wiring import host_inspection as host

    yield look("root", partial(host.inspect_root, os.geteuid()), "run as root (sudo outlive ...)", bad=bad)
    mend = "modprobe overlay loop, or use another kernel"
    yield look("kernel", host.inspect_host_kernel, mend, bad=bad)
    yield look("cgroups", host.inspect_cgroups, "mount them; in a container, give it the host's cgroups", bad=bad)
    yield _runsc(settings, bad)
    yield look("programs", host.inspect_programs, "apt-get install e2fsprogs mount", bad=bad)
    yield look("mmdebstrap", host.inspect_mmdebstrap, "apt-get install mmdebstrap, or use another base", bad="warn")
    if os.geteuid() == 0:
        yield look("base", partial(host.inspect_base, settings), _MAKE_BASE, bad="warn")
        yield look("runtime", partial(host.inspect_runtime, settings), _MAKE_BASE, bad="warn")
    mend = "make room there, or set machines.cache"
    yield look("cache", partial(host.inspect_room, settings), mend, bad="warn")


def _runsc(settings: "Settings", bad: Level) -> Finding:
    from outlive.base import SystemClock
    from outlive.wiring.host_inspection import inspect_runsc

    try:
        age = inspect_runsc(settings, SystemClock().now().date())
    except OutliveError as error:
        return Finding("runsc", bad, error.message, _GET_RUNSC)
    if age.months is None or age.months <= _OLD_MONTHS:
        return Finding("runsc", "ok", age.sentence)
    return Finding("runsc", "warn", age.sentence, _NEWER_RUNSC)


def _trial(settings: "Settings") -> Finding:
    from outlive.wiring.trial import try_sandbox

    async def ask() -> str:
        return f"one booted, and its guest answered after {await try_sandbox(settings):.0f} ms; it is destroyed"

    found = inspect("sandbox", ask, "see what fails above; runsc's own words are in the message")
    if found.level == "fail" and "runtime" in found.detail:
        return Finding("sandbox", "warn", f"not tried. {found.detail}", _MAKE_BASE)
    return found


def _node(settings: "Settings", found: "StackStatus") -> Finding:
    """As the API knows it: whether a node has renewed its lease."""
    from outlive.processes.endpoint import read_endpoint
    from outlive.processes.probe import get
    from outlive.processes.record import read_running

    record, endpoint = read_running(settings.run_path), read_endpoint(settings.endpoint_path)
    if record is None or record.url is None or endpoint is None:
        return Finding("node", "warn", "not asked: the API is not up", "outlive up --detach")
    try:
        status, body = get(record.url, "/v1/nodes", record.tls_path, endpoint.token)
        answer: Any = json.loads(body)
        if status != http.client.OK:
            return Finding("node", "fail", str(answer.get("detail", status)), _NO_NODE)
        return judge_nodes(answer["items"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, AttributeError) as error:
        return Finding("node", "fail", f"the API does not say: {error or type(error).__name__}", _NO_NODE)


def judge_nodes(items: list[dict[str, Any]]) -> Finding:
    """Pure. Whether any node lives, by its lease."""
    alive = [item for item in items if item["has_lease"]]
    gone = len(items) - len(alive)
    late = f"; {gone} without a lease" if gone else ""
    if not alive:
        return Finding("node", "fail", f"no node lives{late}: no machine can run", _NO_NODE)
    names = ", ".join(item["id"] + (" (draining)" if item["is_draining"] else "") for item in alive)
    return Finding("node", "ok", f"alive: {names}{late}")
