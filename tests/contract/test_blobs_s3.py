"""The blobs contract on a real S3 server."""

import pytest

from outlive.storage.objects import ObjectStore
from outlive.testing.blobs import BlobsContract
from services.seaweedfs import SeaweedService, seaweedfs

__all__ = ["seaweedfs"]


class TestS3Blobs(BlobsContract):
    @pytest.fixture
    def objects(self, seaweedfs: SeaweedService) -> ObjectStore:
        return seaweedfs.open()
