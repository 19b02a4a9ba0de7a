"""Archives become trees, and the worst of them nothing but that: no path leads out, and every size is counted."""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from integration.machine.bases.archives import Entry, folder, hard_link, link, nothing, tar_of
from outlive.base import ExhaustedError, InvalidError, NotFoundError
from outlive.machine.backends.bases import ensure_base
from outlive.machine.backends.bases.unpacking import Bounds, decompressed, unpack
from outlive.machine.base import Base

PROGRAM = Entry("bin/tool", b"#!/bin/sh\n", mode=0o755, uid=7, gid=8)


def make(tmp_path: Path, cache: Path, entries: list[Entry], said: list[str]) -> Base:
    archive = tmp_path / "archive.tar"
    archive.write_bytes(tar_of(entries))
    return ensure_base(f"tar:{archive}", cache, say=said.append)


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, lzma.compress, bz2.compress, zstandard.compress], ids=lambda c: c.__module__
)
def test_every_compression_gives_the_same_base(
    compress: Callable[[bytes], bytes], tmp_path: Path, cache: Path, said: list[str]
) -> None:
    plain = tar_of([folder("bin"), PROGRAM, link("sbin", "bin")])
    (tmp_path / "plain.tar").write_bytes(plain)
    (tmp_path / "packed").write_bytes(compress(plain))
    first = ensure_base(f"tar:{tmp_path}/plain.tar", cache, say=said.append)
    second = ensure_base(f"tar:{tmp_path}/packed", cache, say=said.append)
    assert first == second


def test_mode_owner_links_and_content_are_kept(tmp_path: Path, cache: Path, said: list[str]) -> None:
    base = make(
        tmp_path,
        cache,
        [folder("bin"), PROGRAM, link("sbin", "bin"), hard_link("bin/again", "bin/tool"), folder("open", 0o1777)],
        said,
    )
    found = (base.path / "bin" / "tool").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_nlink) == (0o755, 7, 8, 2)
    assert (base.path / "bin" / "tool").read_bytes() == b"#!/bin/sh\n"
    assert os.readlink(base.path / "sbin") == "bin"
    assert stat.S_IMODE((base.path / "open").stat().st_mode) == 0o1777
    assert base.layers == (base.path,)
    assert base.is_immutable


def test_a_later_entry_goes_through_a_link_of_an_earlier_one(tmp_path: Path, cache: Path, said: list[str]) -> None:
    base = make(tmp_path, cache, [folder("usr/lib"), link("lib", "/usr/lib"), Entry("lib/a.so", b"a")], said)
    assert (base.path / "usr/lib/a.so").read_bytes() == b"a"
    assert (base.path / "lib").is_symlink()


@pytest.mark.parametrize(
    "tricks",
    [
        lambda out: [Entry(f"{out}/canary", b"changed")],
        lambda out: [Entry("../" * 40 + f"{out}/canary", b"changed")],
        lambda out: [link("door", str(out)), Entry("door/canary", b"changed")],
        lambda out: [link("door", "/"), link("door2", f"door{out}"), Entry("door2/canary", b"changed")],
        lambda out: [link("up", "../" * 40), Entry(f"up{out}/canary", b"changed")],
        lambda out: [link("file", f"{out}/canary"), Entry("file", b"changed")],
        lambda out: [link("etc", str(out)), Entry("etc/passwd", b"changed")],
        lambda out: [link("tmp", str(out)), link("run", str(out)), link("dev", str(out))],
        lambda out: [folder("a"), link("a/etc", "/"), link("etc", f"a/etc{out}")],
    ],
)
def test_no_archive_reaches_out_of_its_tree(
    tricks: Callable[[Path], list[Entry]], tmp_path: Path, cache: Path, said: list[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "canary").write_bytes(b"whole")
    before = out.stat()
    base = make(tmp_path, cache, tricks(out), said)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"canary": b"whole"}
    after = out.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)
    assert (base.path / "workspace").is_dir()


def test_a_hard_link_to_a_file_of_the_host_is_refused(tmp_path: Path, cache: Path, said: list[str]) -> None:
    (tmp_path / "canary").write_bytes(b"secret")
    with pytest.raises(InvalidError) as refused:
        make(tmp_path, cache, [hard_link("mine", f"{tmp_path}/canary")], said)
    assert refused.value.code == "base.bad_archive"
    assert (tmp_path / "canary").stat().st_nlink == 1
    assert list(cache.glob("[!.]*")) == list(cache.glob(".making-*")) == []


def test_devices_and_setuid_bits_are_left_out_and_that_is_said(tmp_path: Path, cache: Path, said: list[str]) -> None:
    base = make(
        tmp_path,
        cache,
        [
            Entry("disk", type=tarfile.BLKTYPE),
            Entry("mem", type=tarfile.CHRTYPE),
            Entry("su", b"x", mode=0o4755),
            Entry("wall", b"x", mode=0o2755),
        ],
        said,
    )
    assert not {"disk", "mem"} & names(base.path)
    assert {stat.S_IMODE((base.path / name).stat().st_mode) for name in ("su", "wall")} == {0o755}
    assert any("left out 2 devices" in line for line in said)
    assert any("left out 2 setuid bits" in line for line in said)


def test_an_archive_that_brings_python_modules_has_none_of_them_run(
    tmp_path: Path, cache: Path, said: list[str]
) -> None:
    import encodings
    import sysconfig

    evil = b"open('/was-run', 'w').close()\n"
    places = [os.path.dirname(encodings.__file__), sysconfig.get_path("stdlib"), "/usr/lib/python3.11"]
    modules = ("encodings/cp037", "encodings/idna", "bz2", "gzip", "copy", "warnings", "traceback", "contextlib")
    entries = [Entry(f"{place}/{module}.py", evil) for place in places for module in modules]
    base = make(tmp_path, cache, [*entries, Entry("ünïcode-\udce4", b"x"), Entry("x" * 99, b"")], said)
    assert "was-run" not in names(base.path)


@pytest.mark.parametrize(
    ("bounds", "entries"),
    [
        (Bounds(bytes=1_000), [Entry("a", b"x" * 600), Entry("b", b"x" * 600)]),
        (Bounds(entries=3), [Entry(str(number)) for number in range(4)]),
        (Bounds(), [folder("/".join("d" * 300))]),
        (Bounds(), [folder("/".join(["e" * 200] * 20))]),
        (Bounds(), [Entry("a", uid=2**31)]),
    ],
    ids=["bytes", "entries", "depth", "length", "owner"],
)
def test_what_is_over_a_bound_is_refused(bounds: Bounds, entries: list[Entry], tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(tar_of(entries))
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tmp_path / "archive").open("rb") as file, pytest.raises(InvalidError) as refused:
        unpack(tree, decompressed(file), "it", nothing, bounds=bounds)
    assert refused.value.code == "base.bad_archive"


def test_a_small_file_that_decompresses_without_end_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(64 << 20)))
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tmp_path / "bomb").open("rb") as file, pytest.raises((ExhaustedError, InvalidError)):
        unpack(tree, decompressed(file), "it", nothing, bounds=Bounds(bytes=1 << 20, entries=10))
    assert list(tree.iterdir()) == []


def test_headers_that_ask_for_much_memory_are_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 4 << 30
    (tmp_path / "archive").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tmp_path / "archive").open("rb") as file, pytest.raises(InvalidError):
        unpack(tree, decompressed(file), "it", nothing, bounds=Bounds())


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress, lzma.compress, bz2.compress])
def test_an_archive_that_was_cut_off_makes_no_base(
    compress: Callable[[bytes], bytes], tmp_path: Path, cache: Path, said: list[str]
) -> None:
    packed = compress(tar_of([Entry("a", os.urandom(100_000)), Entry("b", b"b")]))
    (tmp_path / "archive").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidError):
        ensure_base(f"tar:{tmp_path}/archive", cache, say=said.append)
    assert list(cache.glob("[!.]*")) == list(cache.glob(".making-*")) == []


def test_a_source_that_is_not_there_is_not_found(tmp_path: Path, cache: Path, said: list[str]) -> None:
    for kind in ("tar", "dir", "oci"):
        with pytest.raises(NotFoundError):
            ensure_base(f"{kind}:{tmp_path}/missing", cache, say=said.append)


def test_a_folder_is_copied_as_it_is_now_and_again_when_it_has_changed(
    tmp_path: Path, cache: Path, said: list[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    (source / "link").symlink_to("/etc/shadow")
    os.mkfifo(source / "fifo")
    first = ensure_base(f"dir:{source}", cache, say=said.append)
    assert (first.path / "link").is_symlink()
    assert ensure_base(f"dir:{source}", cache, say=said.append) == first
    (source / "file").write_text("two")
    second = ensure_base(f"dir:{source}", cache, say=said.append)
    assert second.key != first.key
    assert ((first.path / "file").read_text(), (second.path / "file").read_text()) == ("one", "two")
