"""The blobs contract on local disk, and what a crash around a put leaves there."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from blake3 import blake3

from outlive.base import CrashPoint
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.storage.objects import ObjectStore, open_objects
from outlive.testing.blobs import BlobsContract


class TestLocalBlobs(BlobsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return open_objects(tmp_path / "objects")


_PUT = """
import sys, anyio
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.storage.objects import open_objects
anyio.run(ObjectBlobs(open_objects(sys.argv[1])).put, b"content")
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("point", "is_stored"), [(CrashPoint.BLOB_BEFORE_PUT, False), (CrashPoint.BLOB_AFTER_PUT, True)]
)
async def test_a_put_that_is_killed_leaves_a_whole_blob_or_none_and_may_be_repeated(
    tmp_path: Path, point: CrashPoint, is_stored: bool
) -> None:
    environment = {**os.environ, "OUTLIVE_CRASH_AT": point.value}
    killed = await anyio.run_process([sys.executable, "-c", _PUT, str(tmp_path)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    objects = open_objects(tmp_path)
    digest = blake3(b"content").hexdigest()
    assert [found.key async for found in objects.list()] == [f"blobs/{digest[:2]}/{digest}"] * is_stored
    blobs = ObjectBlobs(objects)
    assert await blobs.get(await blobs.put(b"content")) == b"content"
