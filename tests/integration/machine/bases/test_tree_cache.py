"""The cache of bases: whole or not there, one maker at a time, and nothing left of one that died."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.machine.bases.archives import Entry, folder, nothing, tar_of
from outlive.base import BrokenError, ConflictError, DeniedError, NotFoundError
from outlive.machine.backends.bases import ensure_base, find_base, list_bases, remove_base
from outlive.machine.backends.bases.listing import list_tree
from outlive.machine.backends.bases.tree_cache import mounts_below, remove_tree

MAKER = Path(__file__).with_name("maker.py")
WITHIN_S = 60.0


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive.tar"
    path.write_bytes(tar_of([folder("bin"), Entry("bin/tool", b"tool", mode=0o755)]))
    return path


@contextmanager
def maker(archive: Path, cache: Path) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, str(MAKER), str(archive), str(cache)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_base_is_made_once_and_found_by_its_key(archive: Path, cache: Path, said: list[str]) -> None:
    base = ensure_base(f"tar:{archive}", cache, say=said.append)
    made = base.path.stat().st_ino
    said.clear()
    assert ensure_base(f"tar:{archive}", cache, say=said.append) == base
    assert find_base(base.key, cache) == base
    assert [found for found, _ in list_bases(cache)] == [base]
    assert base.path.stat().st_ino == made
    assert said == []


def test_a_base_is_named_by_its_content(archive: Path, tmp_path: Path, cache: Path, said: list[str]) -> None:
    base = ensure_base(f"tar:{archive}", cache, say=said.append)
    assert base.fingerprint.removeprefix("blake3:").startswith(base.key)
    assert base.path == cache / base.key / "tree"
    other = tmp_path / "other.tar"
    other.write_bytes(tar_of([Entry("bin/tool", b"tool", mode=0o755), Entry("bin/extra")]))
    assert ensure_base(f"tar:{other}", cache, say=said.append).key != base.key


def test_only_root_gets_into_the_cache(archive: Path, cache: Path, said: list[str]) -> None:
    key = ensure_base(f"tar:{archive}", cache, say=said.append).key
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    archive.parent.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(DeniedError):
            remove_base(key, cache, say=said.append)
    finally:
        os.seteuid(0)


def test_two_makers_take_turns_and_the_second_finds_what_the_first_made(archive: Path, cache: Path) -> None:
    cache.mkdir()
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with maker(archive, cache) as first, maker(archive, cache) as second:
            assert first.stdout
            assert second.stdout
            assert "waiting" in first.stdout.readline()
            assert "waiting" in second.stdout.readline()
            fcntl.flock(lock, fcntl.LOCK_UN)
            lines = [process.communicate(timeout=WITHIN_S)[0].splitlines() for process in (first, second)]
    assert lines[0][-1] == lines[1][-1]
    assert sorted(len(said) for said in lines)[0] == 1, "one of them made nothing"
    assert len(list(cache.glob("[!.]*"))) == 1


def test_what_a_killed_maker_left_is_swept_and_made_anew(archive: Path, cache: Path, tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    os.mkfifo(endless)
    with maker(endless, cache) as process:
        with endless.open("wb") as pipe:
            long = tar_of([folder("bin"), Entry("bin/long", bytes(8 << 20))])
            pipe.write(long[: 4 << 20])  # and no more: it waits for the rest
            pipe.flush()
            eventually_sync(lambda: any(cache.glob(".making-*/tree/bin")), WITHIN_S)
            process.send_signal(signal.SIGKILL)
            process.wait(WITHIN_S)
        assert list(cache.glob(".making-*"))
        assert list(cache.glob("[!.]*")) == []
    said: list[str] = []
    base = ensure_base(f"tar:{archive}", cache, say=said.append)
    assert (base.path / "bin/tool").read_bytes() == b"tool"
    assert list(cache.glob(".making-*")) == []
    assert any("sweeping" in line for line in said)


def test_what_a_dead_maker_left_mounted_is_unmounted_and_not_emptied(
    tmp_path: Path, cache: Path, archive: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("whole")
    left = cache / ".making-0123" / "tree" / "proc here"
    left.mkdir(parents=True)
    subprocess.run(["mount", "--bind", kept, left], check=True, timeout=10)
    try:
        ensure_base(f"tar:{archive}", cache, say=nothing)
        assert mounts_below(cache) == []
        assert (kept / "file").read_text() == "whole"
        assert not left.exists()
    finally:
        for point in mounts_below(cache):
            subprocess.run(["umount", "--lazy", point], check=True, timeout=10)


def test_a_base_that_a_machine_runs_on_is_not_removed(archive: Path, cache: Path, tmp_path: Path) -> None:
    base = ensure_base(f"tar:{archive}", cache, say=nothing)
    memory = tmp_path / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", memory], check=True, timeout=10)
    try:
        for name in ("upper", "work", "merged"):
            (memory / name).mkdir()
        options = f"lowerdir={base.path},upperdir={memory}/upper,workdir={memory}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, memory / "merged"], check=True, timeout=10)
        with pytest.raises(ConflictError):
            remove_base(base.key, cache, say=nothing)
        assert (base.path / "bin/tool").exists()
    finally:
        for point in mounts_below(memory):
            subprocess.run(["umount", point], check=True, timeout=10)
    remove_base(base.key, cache, say=nothing)
    assert list_bases(cache) == []
    with pytest.raises(NotFoundError):
        remove_base(base.key, cache, say=nothing)
    assert ensure_base(f"tar:{archive}", cache, say=nothing) == base, "its recipe makes it again"


def test_a_damaged_record_is_said_and_can_be_removed(archive: Path, cache: Path) -> None:
    base = ensure_base(f"tar:{archive}", cache, say=nothing)
    (cache / base.key / "base.json").write_text("{")
    with pytest.raises(BrokenError):
        find_base(base.key, cache)
    remove_base(base.key, cache, say=nothing)
    assert ensure_base(f"tar:{archive}", cache, say=nothing) == base


def test_every_fact_of_an_entry_changes_the_name_of_a_tree(tmp_path: Path) -> None:
    def digest() -> str:
        return list_tree(tmp_path).digest

    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("one")
    seen = {digest()}
    steps: list[Callable[[], object]] = [
        lambda: file.write_text("two"),
        lambda: file.chmod(0o600),
        lambda: os.chown(file, 5, 0),
        lambda: os.chown(file, 5, 6),
        lambda: file.rename(other),
        lambda: file.symlink_to("b"),
        lambda: (tmp_path / "new").symlink_to("c"),
        lambda: (tmp_path / "new").replace(file),
        lambda: (tmp_path / "d").mkdir(),
    ]
    for step in steps:
        step()
        assert digest() not in seen
        seen.add(digest())
    os.utime(other, (1, 1))
    assert digest() in seen, "a time is no part of it"


def test_a_tree_with_a_device_has_no_name(tmp_path: Path) -> None:
    os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(BrokenError):
        list_tree(tmp_path)


def test_removing_a_tree_follows_no_link_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "door").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept" / "file").exists()
