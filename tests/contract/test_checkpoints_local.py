"""The checkpoint contract on local disk."""

import os
from pathlib import Path

import pytest

from outlive.base import new_checkpoint_id
from outlive.machine.checkpoint import CheckpointStore, Living
from outlive.storage.objects import ObjectStore, open_objects
from outlive.testing.checkpoints import CheckpointsContract


class TestLocalCheckpoints(CheckpointsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return open_objects(tmp_path / "objects")


@pytest.mark.anyio
async def test_a_sweep_removes_what_writers_left_that_died_long_ago(tmp_path: Path) -> None:
    objects = open_objects(tmp_path / "objects")
    await objects.put_new("checkpoints/packs/other", b"")
    left = tmp_path / "objects" / "checkpoints" / "packs" / f"{new_checkpoint_id()}.0123abcd.0#42"
    left.write_bytes(b"half of a pa")

    async def nobody() -> Living:
        return Living(frozenset(), frozenset())

    await CheckpointStore(objects).sweep(nobody)
    assert left.exists(), "its writer may still be at it"
    os.utime(left, (1_000, 1_000))
    await CheckpointStore(objects).sweep(nobody)
    assert not left.exists()
    assert await objects.exists("checkpoints/packs/other"), "not a name of ours"
