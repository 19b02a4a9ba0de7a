"""Every crash point is in the code, and a test kills the process there."""

import pytest

from outlive.base import CrashPoint
from style.tree import name_of, python_files


def _source(folder: str, *without: str) -> str:
    return "\n".join(path.read_text() for path in python_files(folder) if not name_of(path).startswith(without))


@pytest.mark.parametrize("point", CrashPoint)
def test_a_crash_point_is_reached_by_the_code(point: CrashPoint) -> None:
    is_reached = f"reach(CrashPoint.{point.name})" in _source("src/outlive/")
    assert is_reached, f"nothing reaches {point!r}"


@pytest.mark.parametrize("point", CrashPoint)
def test_a_crash_point_is_named_by_a_test(point: CrashPoint) -> None:
    source = _source("tests/", "tests/style/")
    is_named = any(name in source for name in (f"CrashPoint.{point.name}", f'"{point}"', f'"{point}:'))
    assert is_named, f"no test kills at {point!r}"
