"""Which cgroups a host has, and how the files of both versions are read and written: on ordinary files here."""

import os
from pathlib import Path

import pytest

from outlive.base import BrokenError, UnavailableError
from outlive.machine.backends.gvisor.cgroups import (
    CgroupsV1,
    CgroupsV2,
    Mounts,
    check_limits,
    expected_limits,
    find_cgroups,
    parse_mounts,
)
from outlive.machine.spec import Limits

V1 = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,nodev,noexec,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup /sys/fs/cgroup/my\\040pids cgroup rw,relatime,pids 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
LIMITS = Limits(memory_mib=512, cpus=1.5, threads=700)
HELD = {"memory_bytes": 512 << 20, "cpu_us": 150_000, "threads": 700}


def test_controllers_are_found_where_they_are_mounted() -> None:
    mounts = parse_mounts(V1)
    assert mounts.v2 == Path("/sys/fs/cgroup/unified")
    assert dict(mounts.v1) == {
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct"),
        "memory": Path("/sys/fs/cgroup/memory"),
        "name=systemd": Path("/sys/fs/cgroup/systemd"),
        "pids": Path("/sys/fs/cgroup/my pids"),
        "freezer": Path("/sys/fs/cgroup/freezer"),
    }


def test_a_tree_of_version_2_without_controllers_is_not_taken_for_one_with_them(tmp_path: Path) -> None:
    """A hybrid host: the controllers are in version 1, and limits written to the other tree would limit nothing."""
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    assert isinstance(find_cgroups(parse_mounts(V1)._replace(v2=tmp_path)), CgroupsV1)
    with pytest.raises(UnavailableError) as raised:
        find_cgroups(Mounts({}, tmp_path))
    assert raised.value.code == "sandbox.no_cgroups"
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    assert isinstance(find_cgroups(Mounts({}, tmp_path)), CgroupsV2)


def test_a_host_without_any_is_refused() -> None:
    with pytest.raises(UnavailableError):
        find_cgroups(Mounts({"memory": Path("/nowhere")}, None))


@pytest.mark.parametrize("name", HELD)
def test_a_limit_that_is_not_as_asked_for_is_broken(name: str) -> None:
    assert expected_limits(LIMITS) == HELD
    check_limits(LIMITS, HELD, "/outlive/one")
    for wrong in (0, HELD[name] + 1):
        with pytest.raises(BrokenError) as raised:
            check_limits(LIMITS, {**HELD, name: wrong}, "/outlive/one")
        assert raised.value.code == "sandbox.limits"


def test_version_1_writes_what_it_reads_back(tmp_path: Path) -> None:
    trees = {name: tmp_path / name for name in ("memory", "cpu", "pids", "freezer", "cpuacct")}
    cgroups = CgroupsV1(trees)
    cgroups.create("/outlive/one", LIMITS)
    assert cgroups.read_limits("/outlive/one") == HELD
    cgroups.set_frozen("/outlive/one", True)
    assert cgroups.freezer_state("/outlive/one") == "frozen"
    (tmp_path / "freezer/outlive/one/freezer.state").write_text("FREEZING\n")
    assert cgroups.freezer_state("/outlive/one") == "freezing"
    (tmp_path / "pids/outlive/one/cgroup.procs").write_text("7\n8\n")
    for controller in ("memory", "cpu", "freezer"):
        (tmp_path / controller / "outlive/one/cgroup.procs").write_text("8\n")
    assert cgroups.processes("/outlive/one") == {7, 8}
    assert cgroups.confined("/outlive/one") == {8}, "one that a limit does not hold for is not confined"


def test_version_2_writes_what_it_reads_back(tmp_path: Path) -> None:
    cgroups = CgroupsV2(tmp_path)
    cgroups.create("/outlive/one", LIMITS)
    for parent in (tmp_path, tmp_path / "outlive"):
        assert (parent / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    one = tmp_path / "outlive" / "one"
    assert (one / "cpu.max").read_text() == "150000 100000"
    assert cgroups.read_limits("/outlive/one") == HELD
    (one / "cpu.max").write_text("max 100000\n")
    (one / "memory.max").write_text("max\n")
    assert cgroups.read_limits("/outlive/one") == {**HELD, "cpu_us": 0, "memory_bytes": 0}


def test_a_machine_weighs_as_many_cpus_as_it_may_use_and_all_of_them_as_many_as_there_are(tmp_path: Path) -> None:
    CgroupsV2(tmp_path / "v2").create("/outlive/one", LIMITS)
    CgroupsV1({name: tmp_path / name for name in ("memory", "cpu", "pids", "freezer")}).create("/outlive/one", LIMITS)
    cores = os.cpu_count() or 1
    assert (tmp_path / "v2/outlive/one/cpu.weight").read_text() == "150"
    assert (tmp_path / "v2/outlive/cpu.weight").read_text() == str(100 * cores)
    assert (tmp_path / "cpu/outlive/one/cpu.shares").read_text() == "1536"
    assert (tmp_path / "cpu/outlive/cpu.shares").read_text() == str(1024 * cores)
    assert not (tmp_path / "cpu/cpu.shares").exists()


def test_version_2_is_frozen_only_when_the_kernel_says_so(tmp_path: Path) -> None:
    cgroups, one = CgroupsV2(tmp_path), tmp_path / "one"
    one.mkdir()
    assert cgroups.freezer_state("/one") == "thawed"
    cgroups.set_frozen("/one", True)
    (one / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert cgroups.freezer_state("/one") == "freezing"
    (one / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert cgroups.freezer_state("/one") == "frozen"
    cgroups.set_frozen("/one", False)
    assert cgroups.freezer_state("/one") == "thawed"


def test_usage_of_version_2_is_read_in_its_units(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    (one / "memory.current").write_text("4096\n")
    (one / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (one / "pids.current").write_text("12\n")
    assert CgroupsV2(tmp_path).usage("/one") == (4096, 2.5, 12)


def test_what_is_not_there_is_removed_and_empty_parents_go_with_it(tmp_path: Path) -> None:
    cgroups = CgroupsV2(tmp_path)
    (tmp_path / "outlive/home/one").mkdir(parents=True)
    (tmp_path / "outlive/other").mkdir()
    assert cgroups.remove("/outlive/home/one")
    assert [path.name for path in (tmp_path / "outlive").iterdir()] == ["other"]
    assert cgroups.remove("/outlive/home/one")
    assert cgroups.remove("/outlive/other")
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_not_empty_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "busy").mkdir()
    assert not CgroupsV2(tmp_path).remove("/one")
