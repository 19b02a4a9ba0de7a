"""What a checkpoint store promises, wherever its objects lie: subclass `CheckpointsContract`, give it `objects`.

`objects` is an empty store; no other test sees it. The tests make whiteouts and change owners: they need root.
"""

import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
from blake3 import blake3

from outlive.base import (
    BrokenError,
    CheckpointId,
    ConflictError,
    InvalidError,
    NotFoundError,
    new_checkpoint_id,
    new_machine_id,
)
from outlive.machine.checkpoint import CheckpointFacts, CheckpointStore, Living, Manifest, Progress
from outlive.storage.objects import ObjectStore

PAGE = 4096
SMALL_PACKS = 256 * 1024


def facts_of_a_machine(checkpoint: CheckpointId | None = None) -> CheckpointFacts:
    return CheckpointFacts(
        id=checkpoint or new_checkpoint_id(),
        machine=new_machine_id(),
        generation=7,
        base_key="debian-1",
        base_fingerprint="f0",
        runtime_key="runtime-1",
        runsc_version="0.0~1",
        platform="systrap",
        cpu_features=("avx2", "sse4_2"),
        spec={"hostname": "m", "limits": {"memory": 2**31}},
        effects=("eff_1", {"id": "eff_2", "state": "finished"}),
    )


def make_image(folder: Path, pages: Iterable[bytes]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "checkpoint.img").write_bytes(b"kernel objects" * 1000)
    (folder / "pages.img").write_bytes(b"".join(pages))
    (folder / "pages_meta.img").write_bytes(b"")


def random_pages(seed: int, count: int) -> list[bytes]:
    content = some_bytes(seed, count * PAGE)
    return [content[start : start + PAGE] for start in range(0, len(content), PAGE)]


def some_bytes(seed: int, length: int) -> bytes:
    """Incompressible, and the same each time."""
    return blake3(str(seed).encode()).digest(length=length)


def make_upper(upper: Path) -> None:
    """One of everything that an overlay's upper directory can hold."""
    (upper / "etc").mkdir(parents=True)
    (upper / "etc" / "passwd").write_bytes(b"agent:x:1000:1000\n")
    os.mknod(upper / "etc" / "removed", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    (upper / "opaque").mkdir(mode=0o2750)
    os.setxattr(upper / "opaque", b"trusted.overlay.opaque", b"y")
    (upper / "opaque" / "empty").mkdir()
    work = upper / "workspace"
    work.mkdir()
    os.chown(work, 1000, 1000)
    (work / "big").write_bytes(some_bytes(1, 700_000))
    os.link(work / "big", upper / "same as big")
    os.setxattr(work / "big", b"user.comment", b"\x00binary\xff")
    (work / "su").write_bytes(b"#!")
    os.chown(work / "su", 0, 0)
    (work / "su").chmod(0o4755)
    (work / "unreadable").write_bytes(b"")
    (work / "unreadable").chmod(0)
    with (work / "sparse").open("wb") as file:
        file.seek(5 * 2**20)
        file.write(b"island")
        file.truncate(20 * 2**20)
    (work / "link").symlink_to("/etc/../../../etc/shadow")
    os.link(work / "link", work / "link too", follow_symlinks=False)
    os.mkfifo(work / "pipe", 0o640)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(work / "s"))
    Path(os.fsdecode(bytes(work) + b"/not \xff utf-8\nat all")).write_bytes(b"x")
    for number in range(300):
        (work / f"module{number}.py").write_text(f"# {number}\n" * number)
    for path in sorted(upper.rglob("*"), reverse=True):
        os.utime(path, ns=(0, 1_600_000_000_123_456_789), follow_symlinks=False)


def describe(root: Path) -> dict[str, tuple[object, ...]]:
    """All that can be told of a tree: two are the same if this is."""
    names: dict[tuple[int, int], str] = {}
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        info = path.lstat()
        name = ascii(str(path.relative_to(root)))
        what: object = None
        attributes: dict[str, bytes] = {}
        if path.is_symlink():
            what = path.readlink()
        elif path.is_file():
            what = path.read_bytes()
        if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
            attributes = {key: os.getxattr(path, key) for key in sorted(os.listxattr(path))}
        first_name = names.setdefault((info.st_dev, info.st_ino), name)
        size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
        found[name] = (
            *(info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, info.st_rdev, size),
            *(what, attributes, first_name),
        )
    return found


async def keys_of(objects: ObjectStore) -> set[str]:
    return {found.key async for found in objects.list("checkpoints")}


class CheckpointsContract:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def objects(self) -> ObjectStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self, objects: ObjectStore) -> CheckpointStore:
        return CheckpointStore(objects, pack_bytes=SMALL_PACKS)

    @pytest.fixture
    def image(self, tmp_path: Path) -> Path:
        make_image(tmp_path / "image", [*random_pages(1, 300), *[bytes(PAGE)] * 5000, *random_pages(1, 10)])
        return tmp_path / "image"

    @pytest.fixture
    def upper(self, tmp_path: Path) -> Path:
        make_upper(tmp_path / "upper")
        return tmp_path / "upper"

    async def test_what_was_saved_is_fetched_as_it_was(
        self, store: CheckpointStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        facts = facts_of_a_machine()
        saved = await store.save(facts, image, upper)
        await store.verify(saved.manifest)
        manifest = await store.read_manifest(facts.id)
        assert manifest == saved.manifest
        assert manifest.facts == facts
        await store.fetch(manifest, tmp_path / "image2", tmp_path / "upper2")
        assert describe(tmp_path / "upper2") == describe(upper)
        for name in ("checkpoint.img", "pages.img", "pages_meta.img"):
            assert (tmp_path / "image2" / name).read_bytes() == (image / name).read_bytes()
        sparse = (tmp_path / "upper2" / "workspace" / "sparse").stat()
        assert sparse.st_blocks * 512 < 2**20, "holes stay holes"
        assert (tmp_path / "image2" / "pages.img").stat().st_blocks * 512 < 3 * 2**20, "zeros cost nothing on disk"
        assert not [name for name in os.listdir(tmp_path) if name.endswith((".partial", ".files"))]

    async def test_the_second_checkpoint_adds_what_changed_and_needs_nothing_else(
        self, store: CheckpointStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        first = await store.save(facts_of_a_machine(), image, upper)
        pages = random_pages(1, 300)
        make_image(image, [*random_pages(2, 3), *pages[:100], *pages[103:200], random_pages(3, 1)[0], *pages[200:]])
        (upper / "workspace" / "module7.py").write_text("changed")
        second = await store.save(facts_of_a_machine(), image, upper, first.manifest)
        await store.verify(second.manifest)
        assert second.manifest.parent == first.manifest.id
        assert second.new_bytes < 0.1 * first.new_bytes
        await store.fetch(second.manifest, tmp_path / "image2", tmp_path / "upper2")
        assert (tmp_path / "image2" / "pages.img").read_bytes() == (image / "pages.img").read_bytes()
        assert describe(tmp_path / "upper2") == describe(upper)

    async def test_the_files_alone_are_a_checkpoint_for_a_cold_boot(
        self, store: CheckpointStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        saved = await store.save(facts_of_a_machine(), None, upper)
        assert not saved.manifest.has_memory
        with pytest.raises(InvalidError):
            await store.fetch(saved.manifest, tmp_path / "image2", tmp_path / "upper2")
        await store.fetch(saved.manifest, None, tmp_path / "upper2")
        assert describe(tmp_path / "upper2") == describe(upper)
        with_memory = await store.save(facts_of_a_machine(), image, upper, saved.manifest)
        await store.fetch(with_memory.manifest, None, tmp_path / "upper3")
        assert describe(tmp_path / "upper3") == describe(upper)

    async def test_a_checkpoint_that_is_not_there_is_not_found(self, store: CheckpointStore) -> None:
        with pytest.raises(NotFoundError):
            await store.read_manifest(new_checkpoint_id())
        with pytest.raises(InvalidError):
            await store.read_manifest(CheckpointId("../../etc"))

    async def test_an_id_is_saved_once(self, store: CheckpointStore, objects: ObjectStore, upper: Path) -> None:
        facts = facts_of_a_machine()
        saved = await store.save(facts, None, upper)
        before = await keys_of(objects)
        with pytest.raises(ConflictError):
            await store.save(facts, None, upper)
        assert await keys_of(objects) == before
        await store.verify(saved.manifest)

    async def test_verify_names_each_new_object_that_is_damaged_or_gone(
        self, store: CheckpointStore, objects: ObjectStore, image: Path, upper: Path
    ) -> None:
        saved = await store.save(facts_of_a_machine(), image, upper)
        for key in sorted(await keys_of(objects)):
            whole = await objects.get(key)
            middle = len(whole) // 2
            await objects.replace(key, whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
            await self._verify_names(store, saved.manifest, key)
            await objects.replace(key, whole[:-1])
            await self._verify_names(store, saved.manifest, key)
            await objects.delete(key)
            if "manifests" in key:
                with pytest.raises(NotFoundError):
                    await store.verify(saved.manifest)
            else:
                await self._verify_names(store, saved.manifest, key)
            await objects.put_new(key, whole)
        await store.verify(saved.manifest)

    async def _verify_names(self, store: CheckpointStore, manifest: Manifest, key: str) -> None:
        with pytest.raises(BrokenError) as raised:
            await store.verify(manifest)
        assert raised.value.facts["object"] == key

    async def test_verify_names_a_pack_of_an_ancestor_that_is_gone_or_cut(
        self, store: CheckpointStore, objects: ObjectStore, image: Path, upper: Path
    ) -> None:
        first = await store.save(facts_of_a_machine(), image, upper)
        second = await store.save(facts_of_a_machine(), image, upper, first.manifest)
        key = first.manifest.makers[0].pack_key(0)
        whole = await objects.get(key)
        await objects.replace(key, whole[:-1])
        await self._verify_names(store, second.manifest, key)
        await objects.delete(key)
        await self._verify_names(store, second.manifest, key)

    async def test_a_damaged_or_missing_object_is_named_by_fetch_and_no_file_appears(
        self, store: CheckpointStore, objects: ObjectStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        saved = await store.save(facts_of_a_machine(), image, upper)
        (tmp_path / "target").mkdir()
        targets = (tmp_path / "target" / "image", tmp_path / "target" / "upper")
        for key in sorted(saved.manifest.objects()):
            whole = await objects.get(key)
            await objects.replace(key, bytes([whole[0] ^ 1]) + whole[1:])
            with pytest.raises(BrokenError) as raised:
                await store.fetch(saved.manifest, *targets)
            assert raised.value.facts["object"] == key
            await objects.delete(key)
            with pytest.raises(BrokenError) as raised:
                await store.fetch(saved.manifest, *targets)
            assert raised.value.facts["object"] == key
            assert list((tmp_path / "target").iterdir()) == []
            await objects.put_new(key, whole)
        await store.fetch(saved.manifest, *targets)

    async def test_fetch_never_writes_into_a_folder_that_is_there(
        self, store: CheckpointStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        saved = await store.save(facts_of_a_machine(), image, upper)
        for taken in (tmp_path / "image2", tmp_path / "upper2"):
            taken.mkdir()
            with pytest.raises(ConflictError):
                await store.fetch(saved.manifest, tmp_path / "image2", tmp_path / "upper2")
            taken.rmdir()
        assert not (tmp_path / "image2").exists()
        assert not (tmp_path / "upper2").exists()

    async def test_progress_grows_to_the_end(
        self, store: CheckpointStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        told: list[Progress] = []
        saved = await store.save(facts_of_a_machine(), image, upper, progress=told.append)
        await store.verify(saved.manifest, told.append)
        await store.fetch(saved.manifest, tmp_path / "image2", tmp_path / "upper2", told.append)
        for phase in ("save", "verify", "fetch"):
            done = [progress.done_bytes for progress in told if progress.phase == phase]
            assert len(done) > 1
            assert done == sorted(done)
        assert told[-1].total_bytes is not None
        assert 0 < told[-1].done_bytes <= told[-1].total_bytes

    async def test_sweep_takes_what_nobody_needs_and_nothing_else(
        self, store: CheckpointStore, objects: ObjectStore, image: Path, upper: Path, tmp_path: Path
    ) -> None:
        first = (await store.save(facts_of_a_machine(), image, upper)).manifest
        make_image(image, [*random_pages(1, 250), *random_pages(5, 100)])
        second = (await store.save(facts_of_a_machine(), image, upper, first)).manifest
        stray = f"checkpoints/packs/{new_checkpoint_id()}.0123abcd.0"
        making = new_checkpoint_id()
        under_way = f"checkpoints/packs/{making}.0123abcd.0"
        await objects.put_new(stray, b"of a save that died")
        await objects.put_new(under_way, b"of a save that goes on")
        await objects.put_new("blobs/other", b"not ours")

        async def live() -> Living:
            return Living(frozenset({second.id}), frozenset({making}))

        swept = await store.sweep(live)
        assert swept.objects >= 2
        left = await keys_of(objects)
        assert left == {*second.objects(), f"checkpoints/manifests/{second.id}", under_way}
        assert await objects.exists("blobs/other")
        await store.verify(second)
        await store.fetch(second, tmp_path / "image2", tmp_path / "upper2")
        assert (tmp_path / "image2" / "pages.img").read_bytes() == (image / "pages.img").read_bytes()

    async def test_sweep_stops_when_a_kept_checkpoint_cannot_be_read(
        self, store: CheckpointStore, objects: ObjectStore, upper: Path
    ) -> None:
        saved = await store.save(facts_of_a_machine(), None, upper)
        await objects.replace(f"checkpoints/manifests/{saved.manifest.id}", b"?")
        before = await keys_of(objects)

        async def live() -> Living:
            return Living(frozenset({saved.manifest.id}), frozenset())

        with pytest.raises(BrokenError):
            await store.sweep(live)
        assert await keys_of(objects) == before
