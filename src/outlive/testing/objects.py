"""What every object store promises, wherever its bytes lie: subclass `ObjectsContract`, give it an `objects` fixture.

`objects` is an empty store; no other test sees it.
"""

import os

import anyio
import pytest

from outlive.base import InvalidError, NotFoundError
from outlive.storage.objects import ObjectStore

HOSTILE_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "..",
    "../up",
    "a/../../up",
    "a/./b",
    "a//b",
    "a/",
    ".hidden",
    "a\\b",
    "a\0b",
    "a#1",
    "a%2e%2e",
    "a b",
    "ä",
    "\ud800",
    "a\n",
    "x" * 201,
    "/".join(["x" * 100] * 10),
)


class ObjectsContract:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def objects(self) -> ObjectStore:
        raise NotImplementedError

    @pytest.mark.parametrize("size", [0, 1, 4096, 8 * 1024 * 1024 + 1])
    async def test_what_was_put_is_got_byte_for_byte(self, objects: ObjectStore, size: int) -> None:
        content = os.urandom(size)
        assert await objects.put_new("a/b/c", content)
        assert await objects.get("a/b/c") == content
        assert await objects.size("a/b/c") == size

    async def test_put_new_of_a_taken_key_says_so_and_changes_nothing(self, objects: ObjectStore) -> None:
        assert await objects.put_new("key", b"first")
        assert not await objects.put_new("key", b"second")
        assert await objects.get("key") == b"first"

    async def test_of_many_concurrent_puts_of_one_key_exactly_one_writes(self, objects: ObjectStore) -> None:
        contents = [bytes([number]) * 100_000 for number in range(12)]
        won: list[bytes] = []

        async def put(content: bytes) -> None:
            if await objects.put_new("contested", content):
                won.append(content)

        async with anyio.create_task_group() as tasks:
            for content in contents:
                tasks.start_soon(put, content)
        assert len(won) == 1
        assert await objects.get("contested") == won[0]

    async def test_replace_puts_the_new_content_in_place_of_the_old(self, objects: ObjectStore) -> None:
        await objects.replace("key", b"first")
        await objects.replace("key", b"second, and longer")
        assert await objects.get("key") == b"second, and longer"
        assert [found.key async for found in objects.list()] == ["key"]

    async def test_a_key_that_is_not_there_is_not_found(self, objects: ObjectStore) -> None:
        await objects.put_new("folder/object", b"x")
        for key in ("nothing", "folder", "folder/nothing"):
            with pytest.raises(NotFoundError) as raised:
                await objects.get(key)
            assert raised.value.code == "objects.not_found"
            with pytest.raises(NotFoundError):
                await objects.size(key)
            assert not await objects.exists(key)
        assert await objects.exists("folder/object")

    async def test_delete_takes_one_object_away_and_may_be_repeated(self, objects: ObjectStore) -> None:
        await objects.put_new("a/one", b"1")
        await objects.put_new("a/two", b"2")
        await objects.delete("a/one")
        await objects.delete("a/one")
        assert not await objects.exists("a/one")
        assert await objects.get("a/two") == b"2"
        assert await objects.put_new("a/one", b"again")

    async def test_list_finds_all_below_a_folder_and_nothing_beside_it(self, objects: ObjectStore) -> None:
        for key in ("a/1", "a/b/2", "ab/3", "c"):
            await objects.put_new(key, key.encode() * 2)
        assert {(found.key, found.size) async for found in objects.list("a")} == {("a/1", 6), ("a/b/2", 10)}
        assert {found.key async for found in objects.list()} == {"a/1", "a/b/2", "ab/3", "c"}
        assert [found async for found in objects.list("nothing")] == []

    async def test_list_goes_on_beyond_one_chunk(self, objects: ObjectStore) -> None:
        keys = {f"many/{number:04}" for number in range(1_100)}
        limiter = anyio.CapacityLimiter(16)

        async def put(key: str) -> None:
            async with limiter:
                await objects.put_new(key, b"")

        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(put, key)
        assert {found.key async for found in objects.list("many")} == keys

    @pytest.mark.parametrize("key", HOSTILE_KEYS, ids=lambda key: ascii(key)[:20])
    async def test_a_key_that_is_not_a_plain_path_is_refused(self, objects: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidError):
            await objects.put_new(key, b"x")
        with pytest.raises(InvalidError):
            await objects.replace(key, b"x")
        with pytest.raises(InvalidError):
            await objects.get(key)
        with pytest.raises(InvalidError):
            await objects.size(key)
        with pytest.raises(InvalidError):
            await objects.delete(key)

    async def test_check_is_content_with_a_store_that_works(self, objects: ObjectStore) -> None:
        await objects.check()
