"""Checkpoints that older versions stored are read for ever: never change these files, add a folder for a new format."""

import shutil
from pathlib import Path

import pytest

from outlive.base import CheckpointId
from outlive.machine.checkpoint import CheckpointStore
from outlive.storage.objects import open_objects
from outlive.testing.checkpoints import PAGE, describe, random_pages

GOLDEN = Path(__file__).parents[3] / "golden" / "checkpoints"
FIRST, SECOND = (CheckpointId(f"ckpt_{number:032x}") for number in (1, 2))


@pytest.mark.anyio
@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
async def test_a_checkpoint_of_every_format_is_fetched(tmp_path: Path, version: str) -> None:
    shutil.copytree(GOLDEN / version, tmp_path / "objects")
    store = CheckpointStore(open_objects(tmp_path / "objects"))
    manifest = await store.read_manifest(SECOND)
    await store.verify(manifest)
    await store.fetch(manifest, tmp_path / "image", tmp_path / "upper")
    assert manifest.parent == FIRST
    assert manifest.facts.effects == ("eff_1", {"id": "eff_2", "state": "finished"})
    pages = [*random_pages(1, 18), bytes(PAGE), *random_pages(2, 2)]
    assert (tmp_path / "image" / "pages.img").read_bytes() == b"".join(pages)
    upper = tmp_path / "upper"
    assert (upper / "file").read_text() == "kept\n" * 100
    assert (upper / "same").samefile(upper / "file")
    assert (upper / "link").readlink() == Path("file")
    assert (upper / "removed").is_char_device()
    assert set(describe(upper)) == {"'.'", "'file'", "'folder'", "'link'", "'removed'", "'same'"}
    assert {path.lstat().st_mtime_ns for path in [upper, *upper.iterdir()]} == {1_600_000_000_000_000_000}
