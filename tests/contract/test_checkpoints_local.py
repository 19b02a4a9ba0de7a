"""The checkpoint contract on local disk."""

from pathlib import Path

import pytest

from outlive.storage.objects import ObjectStore, open_objects
from outlive.testing.checkpoints import CheckpointsContract


class TestLocalCheckpoints(CheckpointsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return open_objects(tmp_path / "objects")
