"""The checkpoint contract on a real S3 server."""

import pytest

from outlive.storage.objects import ObjectStore
from outlive.testing.checkpoints import CheckpointsContract
from services.seaweedfs import SeaweedService, seaweedfs

__all__ = ["seaweedfs"]


class TestS3Checkpoints(CheckpointsContract):
    @pytest.fixture
    def objects(self, seaweedfs: SeaweedService) -> ObjectStore:
        return seaweedfs.open()
