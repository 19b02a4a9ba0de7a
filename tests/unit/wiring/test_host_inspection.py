"""What is said of a host that cannot run machines, and of how old its sandbox is."""

from datetime import date
from pathlib import Path

import pytest

from outlive.base import DeniedError, NotFoundError, UnavailableError
from outlive.wiring.host_inspection import (
    RunscAge,
    inspect_base,
    inspect_kernel,
    inspect_root,
    inspect_runsc,
    inspect_runtime,
    months_since,
)
from outlive.wiring.settings import Settings, read_settings

_FILESYSTEMS = "nodev\tsysfs\nnodev\toverlay\n\text4\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"home": tmp_path / "home", "machines": {"cache": tmp_path / "cache"}})


@pytest.mark.parametrize(
    ("version", "today", "months"),
    [
        ("0.0~20240729.0", date(2024, 7, 29), 0),
        ("0.0~20240729.0", date(2024, 8, 28), 0),
        ("0.0~20240729.0", date(2024, 8, 29), 1),
        ("release-20240729.0", date(2026, 11, 16), 27),
        ("release-20270101.0", date(2026, 11, 16), 0),
        ("VERSION_MISSING", date(2026, 11, 16), None),
    ],
)
def test_the_age_of_runsc_is_in_its_version(version: str, today: date, months: int | None) -> None:
    assert months_since(version, today) == months
    assert version in RunscAge(version, months).sentence


@pytest.mark.parametrize(
    ("release", "filesystems", "has_loop", "lacking"),
    [
        ("3.10.0-1160.el7", _FILESYSTEMS, True, "a kernel of 4.15 or newer"),
        ("6.1.0-40-amd64", "nodev\tsysfs\n\text4\n", True, "the filesystem overlay"),
        ("6.1.0-40-amd64", _FILESYSTEMS, False, "loop devices"),
    ],
)
def test_what_a_kernel_lacks_is_named(release: str, filesystems: str, has_loop: bool, lacking: str) -> None:
    with pytest.raises(UnavailableError) as raised:
        inspect_kernel(release, filesystems, has_loop=has_loop)
    assert lacking in raised.value.message
    assert inspect_kernel("6.1.0-40-amd64", _FILESYSTEMS, has_loop=True).startswith("Linux 6.1.0-40-amd64")


def test_whoever_is_not_root_is_told_so() -> None:
    assert inspect_root(0)
    with pytest.raises(DeniedError):
        inspect_root(1000)


def test_what_was_not_made_yet_is_named(settings: Settings) -> None:
    for look, code in ((inspect_base, "base.missing"), (inspect_runtime, "runtime.missing")):
        with pytest.raises(NotFoundError) as raised:
            look(settings)
        assert raised.value.code == code
    assert not settings.machines.cache.exists(), "looking makes nothing"


def test_a_runsc_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as raised:
        inspect_runsc(read_settings({"home": tmp_path, "machines": {"runsc": "no-such-runsc"}}), date(2026, 1, 1))
    assert raised.value.code == "sandbox.no_runsc"
