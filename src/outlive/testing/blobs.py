"""What every store of blobs promises: subclass `BlobsContract` and give it an `objects` fixture (an empty store)."""

import os

import anyio
import pytest
from blake3 import blake3

from outlive.base import BrokenError, ExhaustedError, InvalidError, NotFoundError
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.blobs import BLOB_LIMIT, Blobs, is_blob_name
from outlive.storage.objects import ObjectStore

_ABSENT = "b3_" + "0" * 64


class BlobsContract:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def objects(self) -> ObjectStore:
        raise NotImplementedError

    @pytest.fixture
    def blobs(self, objects: ObjectStore) -> Blobs:
        return ObjectBlobs(objects)

    @pytest.mark.parametrize("size", [0, 1, 70_000, 1_000_000])
    async def test_a_blob_comes_back_under_the_hash_of_its_bytes(self, blobs: Blobs, size: int) -> None:
        content = os.urandom(size)
        name = await blobs.put(content)
        assert name == f"b3_{blake3(content).hexdigest()}"
        assert is_blob_name(name)
        assert await blobs.get(name) == content

    async def test_the_same_bytes_are_stored_once(self, blobs: Blobs, objects: ObjectStore) -> None:
        names = [await blobs.put(b"the same"), await blobs.put(b"the same"), await blobs.put(b"other")]
        assert names[0] == names[1] != names[2]
        hashes = [name.removeprefix("b3_") for name in names]
        assert {found.key async for found in objects.list()} == {f"blobs/{h[:2]}/{h}" for h in hashes}

    async def test_concurrent_puts_of_the_same_bytes_all_work(self, blobs: Blobs, objects: ObjectStore) -> None:
        content = os.urandom(300_000)
        names: set[str] = set()

        async def put() -> None:
            names.add(await blobs.put(content))

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(put)
        assert len(names) == 1
        assert await blobs.get(names.pop()) == content
        assert len([found async for found in objects.list()]) == 1

    async def test_a_blob_that_was_never_put_is_not_found(self, blobs: Blobs) -> None:
        with pytest.raises(NotFoundError) as raised:
            await blobs.get(_ABSENT)
        assert raised.value.code == "blob.not_found"

    @pytest.mark.parametrize("name", ["", "b3_", "b3_" + "0" * 63, "b3_" + "A" * 64, _ABSENT + "\n", "../" + _ABSENT])
    async def test_a_name_that_no_blob_has_is_refused(self, blobs: Blobs, name: str) -> None:
        with pytest.raises(InvalidError):
            await blobs.get(name)

    @pytest.mark.parametrize("damage", [b"", b"cut of", b"cut oFf", b"cut off and more"])
    async def test_a_damaged_blob_is_broken_until_it_is_put_again(
        self, blobs: Blobs, objects: ObjectStore, damage: bytes
    ) -> None:
        name = await blobs.put(b"cut off")
        key = f"blobs/{name[3:5]}/{name[3:]}"
        await objects.replace(key, damage)
        with pytest.raises(BrokenError) as raised:
            await blobs.get(name)
        assert raised.value.code == "blob.damaged"
        assert await blobs.put(b"cut off") == name
        assert await blobs.get(name) == b"cut off"

    async def test_the_biggest_blob_is_taken_and_one_byte_more_is_not(self, blobs: Blobs, objects: ObjectStore) -> None:
        biggest = bytes(BLOB_LIMIT)
        assert await blobs.get(await blobs.put(biggest)) == biggest
        with pytest.raises(ExhaustedError) as raised:
            await blobs.put(biggest + b"x")
        assert raised.value.code == "blob.too_big"
        assert [found.size async for found in objects.list()] == [BLOB_LIMIT]
