"""Upper directories read and written again: real overlays, hostile names, what is refused."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlive.base import ExhaustedError, InvalidError
from outlive.machine.checkpoint import CheckpointStore
from outlive.machine.checkpoint.planting import Planter
from outlive.machine.checkpoint.tree import DEEPEST
from outlive.machine.checkpoint.walking import UpperWalk
from outlive.storage.objects import open_objects
from outlive.testing.checkpoints import describe, facts_of_a_machine, make_upper


@contextmanager
def overlay(lower: Path, upper: Path, merged: Path) -> Iterator[Path]:
    work = upper.with_name(f"{upper.name}.work")
    for folder in (upper, work, merged):
        folder.mkdir(exist_ok=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", merged], check=True, timeout=10)
    try:
        yield merged
    finally:
        subprocess.run(["umount", merged], check=True, timeout=10)


def copied(upper: Path, target: Path) -> None:
    walk = UpperWalk(upper)
    contents = b"".join(walk.contents())
    planter = Planter(walk.tree, target, "it")
    planter.prepare()
    planter.write(0, memoryview(contents))
    planter.finish()


@pytest.mark.anyio
async def test_a_fetched_delta_shows_the_same_merged_tree_over_the_same_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    make_upper(base)
    with overlay(base, tmp_path / "upper", tmp_path / "merged") as merged:
        (merged / "etc" / "passwd").unlink()
        shutil.rmtree(merged / "opaque")
        (merged / "opaque").mkdir()
        (merged / "opaque" / "new").write_text("in a folder that hides the old one")
        with (merged / "workspace" / "big").open("ab") as file:
            file.write(b"copied up")
        for number in range(0, 300, 3):
            (merged / "workspace" / f"module{number}.py").unlink()
        (merged / "workspace" / "module1.py").rename(merged / "moved.py")
        before = describe(merged)
    store = CheckpointStore(open_objects(tmp_path / "objects"))
    saved = await store.save(facts_of_a_machine(), None, tmp_path / "upper")
    await store.fetch(saved.manifest, None, tmp_path / "upper2")
    with overlay(base, tmp_path / "upper2", tmp_path / "merged2") as merged:
        assert describe(merged) == before
    assert "'etc/passwd'" not in before
    assert "'opaque/empty'" not in before


def test_an_unchanged_tree_is_the_same_bytes_whatever_order_it_was_made_in(tmp_path: Path) -> None:
    walks = []
    for number, names in enumerate([("a", "b", "c"), ("c", "a", "b")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
        for path in (*folder.iterdir(), folder):
            os.utime(path, ns=(0, 0))
        walk = UpperWalk(folder)
        walks.append((b"".join(walk.contents()), walk.tree))
    assert walks[0] == walks[1]
    assert walks[0][0] == b"abc"


def test_links_of_a_machine_lead_nowhere_while_its_tree_is_written(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("untouched")
    upper = tmp_path / "upper"
    upper.mkdir()
    for name, target in {"abs": str(outside), "rel": "../outside", "file": f"{outside}/file", "loop": "loop"}.items():
        (upper / name).symlink_to(target)
        os.chown(upper / name, 1234, 1234, follow_symlinks=False)
    (upper / "z").mkdir()
    os.link(upper / "file", upper / "z" / "file", follow_symlinks=False)
    before = describe(outside)
    copied(upper, tmp_path / "upper2")
    assert describe(tmp_path / "upper2") == describe(upper)
    assert describe(outside) == before


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    """Opening one to read waits for a writer: a machine could hold its node up for ever."""
    (tmp_path / "upper").mkdir()
    os.mkfifo(tmp_path / "upper" / "pipe")
    copied(tmp_path / "upper", tmp_path / "upper2")
    assert stat.S_ISFIFO((tmp_path / "upper2" / "pipe").lstat().st_mode)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK], ids=["character", "block"])
def test_a_device_is_refused_by_name(tmp_path: Path, kind: int) -> None:
    os.mknod(tmp_path / "mem", kind | 0o666, os.makedev(1, 1))
    with pytest.raises(InvalidError, match="mem"):
        list(UpperWalk(tmp_path).contents())


def test_folders_too_deep_are_refused_and_as_deep_as_allowed_are_kept(tmp_path: Path) -> None:
    def dig(root: Path, depth: int) -> None:
        root.mkdir()
        descriptor = os.open(root, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d" * 200, dir_fd=descriptor)  # longer in all than any path may be
            deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        os.close(descriptor)

    dig(tmp_path / "upper", DEEPEST - 1)
    copied(tmp_path / "upper", tmp_path / "upper2")
    walk, again = UpperWalk(tmp_path / "upper"), UpperWalk(tmp_path / "upper2")
    assert not [*walk.contents(), *again.contents()]
    assert walk.tree == again.tree
    dig(tmp_path / "too deep", DEEPEST)
    with pytest.raises(ExhaustedError):
        list(UpperWalk(tmp_path / "too deep").contents())


def test_what_is_left_of_an_unfinished_write_does_not_get_in_the_way(tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    make_upper(upper)
    walk = UpperWalk(upper)
    contents = b"".join(walk.contents())
    cut_off = Planter(walk.tree, tmp_path / "upper2", "it")
    cut_off.prepare()
    (tmp_path / "upper2.partial").mkdir()
    os.close(cut_off._staging_fd)  # as if its process had died
    assert not (tmp_path / "upper2").exists()
    copied(upper, tmp_path / "upper2")
    assert describe(tmp_path / "upper2") == describe(upper)
    assert len(contents) == cut_off.length
