"""A cache for each test, and ears for what is said. All of it needs root: bases have owners and a root of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlive.machine.backends.bases.tree_cache import mounts_below, remove_tree


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "bases"
    assert mounts_below(tmp_path) == []
    remove_tree(tmp_path / "bases")


@pytest.fixture
def said() -> list[str]:
    return []
