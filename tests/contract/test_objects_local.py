"""The object store contract on local disk, and what is special to a disk: whole or absent, and durable."""

import errno
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from obstore import exceptions as vendor

from outlive.base import DeniedError, ExhaustedError, NotFoundError, OutliveError, UnavailableError
from outlive.storage.objects import ObjectStore, explain, open_objects
from outlive.testing.objects import ObjectsContract

pytestmark = pytest.mark.anyio


class TestLocalObjects(ObjectsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return open_objects(tmp_path / "objects")


async def test_a_path_and_its_file_url_are_the_same_store(tmp_path: Path) -> None:
    folder = tmp_path / "made as needed" / "objects"
    await open_objects(str(folder)).put_new("key", b"x")
    assert await open_objects(folder.as_uri()).get("key") == b"x"
    assert folder.stat().st_mode & 0o077 == 0, "others may not read what is stored"
    assert (folder / "key").stat().st_mode & 0o077 == 0


_PUT = """
import sys, resource, anyio
from outlive.base import OutliveError
from outlive.storage.objects import open_objects
async def main():
    objects = open_objects(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    try:
        await objects.put_new("folder/big", bytes(2_000_000))
    except OutliveError as error:
        print(error.kind, error.code)
    await objects.put_new("folder/small", b"fits")
anyio.run(main)
"""


async def test_a_full_disk_is_exhausted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    # The kernel refuses the write halfway, as a full disk would.
    done = await anyio.run_process([sys.executable, "-c", _PUT, str(tmp_path)])
    assert done.stdout.decode().split() == ["exhausted", "objects.full"]
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["small"]


_PUT_TRACED = """
import sys, anyio, os
from outlive.storage.objects import open_objects
async def main():
    objects = open_objects(sys.argv[1])
    calls = []
    def traced(name, call):
        def inner(*arguments, **options):
            what = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else str(arguments[-1])
            calls.append((name, os.path.relpath(what, sys.argv[1]).partition("#")[0]))
            return call(*arguments, **options)
        return inner
    for name in ("fsync", "link", "mkdir"):
        setattr(os, name, traced(name, getattr(os, name)))
    print(await objects.put_new("a/b", b"x"))
    print(await objects.put_new("a/b", b"x"))
    for name, what in calls:
        print(name, what)
anyio.run(main)
"""


async def test_content_is_flushed_before_it_is_named_and_the_name_before_put_returns(tmp_path: Path) -> None:
    done = await anyio.run_process([sys.executable, "-c", _PUT_TRACED, str(tmp_path)])
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["True", "False"]
    calls = [line for line in lines[2:] if not line.startswith("mkdir")]
    assert calls == [
        "fsync .",  # the name of the new folder
        "fsync a/b",  # the content, under a name that nobody sees
        "link a/b",
        "fsync a",  # its name
        "fsync a",  # the second put found it there: it makes sure as well
    ]


_PUT_FOR_EVER = """
import sys, anyio
from outlive.storage.objects import open_objects
async def main():
    objects = open_objects(sys.argv[1])
    number = 0
    while True:
        await objects.put_new(f"many/{number}", (b"%08d" % number) * 50_000)
        await objects.replace("one", (b"%08d" % number) * 50_000)
        print(number, flush=True)
        number += 1
anyio.run(main)
"""


@pytest.mark.parametrize("after", [1, 2, 5])
async def test_a_writer_that_is_killed_leaves_each_object_whole_or_absent(tmp_path: Path, after: int) -> None:
    writer = await anyio.open_process([sys.executable, "-c", _PUT_FOR_EVER, str(tmp_path)], stderr=subprocess.STDOUT)
    try:
        assert writer.stdout is not None
        told = b""
        while told.count(b"\n") < after:
            told += await writer.stdout.receive()
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        await writer.wait()
        await writer.aclose()
    acknowledged = int(told.splitlines()[after - 1])
    objects = open_objects(tmp_path)
    found = {stored.key: await objects.get(stored.key) async for stored in objects.list()}
    for key, content in found.items():
        number = content[:8]
        assert content == number * 50_000, key
        assert key == "one" or key == f"many/{int(number)}"
    assert {f"many/{number}" for number in range(acknowledged + 1)} <= set(found)
    assert int(found["one"][:8]) >= acknowledged


async def test_a_file_that_was_being_written_is_not_shown(tmp_path: Path) -> None:
    objects = open_objects(tmp_path)
    await objects.put_new("a/b", b"x")
    (tmp_path / "a" / "c#12345").write_bytes(b"half of i")
    assert [found.key async for found in objects.list()] == ["a/b"]
    assert not await objects.exists("a/c")


async def test_what_dead_writers_left_is_discarded_and_what_goes_on_is_not(tmp_path: Path) -> None:
    objects = open_objects(tmp_path)
    await objects.put_new("a/b", b"x")
    for name in ("a/b#12345", "a/deeper/c#1", "a/d#2", "other/e#3", "a/f#no"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half of i")
        if name != "a/d#2":
            os.utime(tmp_path / name, (1_000, 1_000))
    assert await objects.discard_unfinished("a", datetime.fromtimestamp(2_000, UTC)) == 2
    assert set(os.listdir(tmp_path / "a")) == {"b", "d#2", "f#no", "deeper"}
    assert os.listdir(tmp_path / "a" / "deeper") == []
    assert os.listdir(tmp_path / "other") == ["e#3"]
    assert await objects.discard_unfinished("none", datetime.fromtimestamp(2_000, UTC)) == 0


async def test_a_folder_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    objects = open_objects(tmp_path / "objects")
    (tmp_path / "objects").rmdir()
    with pytest.raises(UnavailableError):
        await objects.put_new("key", b"x")


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutliveError):
        open_objects(tmp_path / "file" / "objects")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, ExhaustedError),
        (errno.EDQUOT, ExhaustedError),
        (errno.EACCES, DeniedError),
        (errno.EROFS, DeniedError),
        (errno.ENOENT, NotFoundError),
        (errno.EIO, UnavailableError),
    ],
)
def test_what_a_disk_says_is_told_in_our_words(number: int, kind: type[OutliveError]) -> None:
    assert isinstance(explain(OSError(number, os.strerror(number)), "/data", "key"), kind)


@pytest.mark.parametrize("name", sorted(name for name in dir(vendor) if name.endswith("Error")))
def test_every_exception_of_the_vendor_has_a_kind(name: str) -> None:
    """A class that obstore adds and we do not know must not pass through as it is."""
    raised = getattr(vendor, name)
    assert issubclass(raised, (vendor.BaseError, OSError, ValueError, NotImplementedError))
    assert isinstance(explain(raised("text"), "s3://bucket", "key"), OutliveError)
