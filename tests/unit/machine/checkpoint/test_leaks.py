"""Whatever goes wrong, nothing stays open and nothing stays behind."""

import os
import stat
from pathlib import Path

import anyio
import pytest

from outlive.base import BrokenError, InvalidError
from outlive.machine.checkpoint import CheckpointStore, Progress
from outlive.storage.objects import open_objects
from outlive.testing.checkpoints import facts_of_a_machine, keys_of, make_image, make_upper, random_pages

pytestmark = pytest.mark.anyio


def left_open(folder: Path) -> set[str]:
    """What this process has open below `folder`, but for the objects, whose writers may still be about to finish."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the one that this listing had open
            continue
    return {path for path in found if path.startswith(f"{folder}/") and not path.startswith(f"{folder}/objects")}


async def test_a_save_that_fails_half_way_leaves_nothing_open_and_no_checkpoint(tmp_path: Path) -> None:
    make_upper(tmp_path / "upper")
    os.mknod(tmp_path / "upper" / "workspace" / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    make_image(tmp_path / "image", random_pages(1, 300))
    objects = open_objects(tmp_path / "objects")
    with pytest.raises(InvalidError, match="zero"):
        await CheckpointStore(objects, pack_bytes=100_000).save(
            facts_of_a_machine(), tmp_path / "image", tmp_path / "upper"
        )
    assert left_open(tmp_path) == set()
    assert not [key for key in await keys_of(objects) if "manifests" in key]


async def test_a_save_that_is_cancelled_ends_soon_and_leaves_nothing_open(tmp_path: Path) -> None:
    make_upper(tmp_path / "upper")
    make_image(tmp_path / "image", random_pages(1, 2_000))
    objects = open_objects(tmp_path / "objects")
    with anyio.CancelScope() as scope:

        def cancel_half_way(progress: Progress) -> None:
            if progress.done_bytes >= 2**20:
                scope.cancel()

        await CheckpointStore(objects, pack_bytes=100_000).save(
            facts_of_a_machine(), tmp_path / "image", tmp_path / "upper", progress=cancel_half_way
        )
    assert scope.cancelled_caught
    assert left_open(tmp_path) == set()
    assert not [key for key in await keys_of(objects) if "manifests" in key]


async def test_a_fetch_that_fails_or_is_cancelled_leaves_nothing_open_and_no_file(tmp_path: Path) -> None:
    make_upper(tmp_path / "upper")
    make_image(tmp_path / "image", random_pages(1, 300))
    objects = open_objects(tmp_path / "objects")
    store = CheckpointStore(objects, pack_bytes=100_000)
    saved = await store.save(facts_of_a_machine(), tmp_path / "image", tmp_path / "upper")
    (tmp_path / "target").mkdir()
    with anyio.CancelScope() as scope:
        await store.fetch(
            saved.manifest, tmp_path / "target" / "i", tmp_path / "target" / "u", lambda progress: scope.cancel()
        )
    assert scope.cancelled_caught
    assert os.listdir(tmp_path / "target") == []
    await objects.delete(saved.manifest.makers[0].pack_key(3))
    with pytest.raises(BrokenError):
        await store.fetch(saved.manifest, tmp_path / "target" / "i", tmp_path / "target" / "u")
    assert os.listdir(tmp_path / "target") == []
    assert left_open(tmp_path) == set()
