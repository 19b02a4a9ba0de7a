"""What the bundle of a sandbox says."""

from pathlib import Path
from typing import Any

import pytest

from outlive.base import MachineId
from outlive.machine.backends.gvisor.bundle import CAPABILITIES, compose_bundle
from outlive.machine.sandbox import SandboxPlan
from outlive.machine.spec import Limits

PLAN = SandboxPlan(
    machine=MachineId("mach_" + "0" * 32),
    generation=3,
    limits=Limits(memory_mib=1024, cpus=0.25, threads=500, processes=99),
    layers=(Path("/base"),),
    runtime=Path("/runtimes/one"),
    argv=("/.outlive/bin/guest", "--flag"),
    hostname="box",
)


def composed(plan: SandboxPlan = PLAN) -> dict[str, Any]:
    return compose_bundle(plan, root="/node/root", host="/node/host", cgroup="/outlive/one")


def mounts(plan: SandboxPlan = PLAN) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in composed(plan)["mounts"]}


def test_limits_are_told_to_the_runtime_in_its_own_units() -> None:
    assert composed()["linux"]["cgroupsPath"] == "/outlive/one"
    assert composed()["linux"]["resources"] == {
        "memory": {"limit": 1024 << 20},
        "cpu": {"quota": 25_000, "period": 100_000},
        "pids": {"limit": 500},
    }


def test_the_first_program_is_root_with_few_capabilities_and_gains_none() -> None:
    process = composed()["process"]
    assert process["args"] == ["/.outlive/bin/guest", "--flag"]
    assert process["user"] == {"uid": 0, "gid": 0}
    assert process["noNewPrivileges"] is True
    assert set(process["capabilities"]) == {"bounding", "effective", "permitted", "inheritable"}
    assert all(given == list(CAPABILITIES) for given in process["capabilities"].values())


@pytest.mark.parametrize("name", ["SYS_ADMIN", "SYS_MODULE", "NET_ADMIN", "NET_RAW", "MKNOD", "SYS_TIME", "BPF"])
def test_what_reaches_beyond_the_sandbox_is_never_given(name: str) -> None:
    assert f"CAP_{name}" not in CAPABILITIES


def test_what_belongs_to_the_host_is_read_only() -> None:
    assert mounts()["/.outlive"]["source"] == "/runtimes/one"
    assert mounts()["/run/outlive"]["source"] == "/node/host"
    for place in ("/.outlive", "/run/outlive"):
        assert "ro" in mounts()[place]["options"]
    assert "ro" in mounts()["/sys"]["options"]


@pytest.mark.parametrize("memory_mib", [64, 128, 2048, 1_000_000])
def test_all_places_in_memory_together_leave_a_quarter_of_it(memory_mib: int) -> None:
    plan = PLAN._replace(limits=Limits(memory_mib=memory_mib))
    sizes = [
        int(option.removeprefix("size=").removesuffix("m"))
        for mount in mounts(plan).values()
        if mount["type"] == "tmpfs"
        for option in mount["options"]
        if option.startswith("size=")
    ]
    assert len(sizes) == 4
    assert min(sizes) >= 4
    assert sum(sizes) <= memory_mib * 3 // 4


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_read_only_machine_has_a_read_only_root(is_read_only: bool) -> None:
    root = composed(PLAN._replace(is_read_only=is_read_only))["root"]
    assert root == {"path": "/node/root", "readonly": is_read_only}


def test_it_shares_no_namespace_with_the_host() -> None:
    spaces = composed()["linux"]["namespaces"]
    assert {space["type"] for space in spaces} == {"pid", "mount", "ipc", "uts", "network"}
    assert all("path" not in space for space in spaces)
