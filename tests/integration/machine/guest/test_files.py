"""Files of a machine through its guest: whole or not at all, as a user of the machine, whatever their names."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.base import ConflictError, DeniedError, ExhaustedError, InvalidError, NotFoundError
from outlive.machine.guest_link import Guest

pytestmark = pytest.mark.anyio

NAMES = [b"plain", b"with space", b"new\nline", b"\xff\xfe", "ü→".encode(), b"-rf", b"a\\b", b"x" * 255]


async def test_a_written_file_is_read_back_and_belongs_to_the_agent(guest: Guest, workspace: Path) -> None:
    content = os.urandom(700_000)
    assert await guest.files.write("deep/er/file", content, mode=0o640, parents=True) == len(content)
    found = (workspace / "deep/er/file").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, 1000, 1000)
    assert await guest.files.read_bytes("deep/er/file", most=len(content)) == content
    with pytest.raises(ExhaustedError):
        await guest.files.read_bytes("deep/er/file", most=len(content) - 1)


async def test_a_part_of_a_file_is_read(guest: Guest, workspace: Path) -> None:
    (workspace / "file").write_bytes(bytes(range(256)) * 1024)
    async with guest.files.read("file", offset=1000, limit=100_000) as content:
        assert content.facts.size == 256 * 1024
        got = b"".join([data async for data in content])
    assert got == (bytes(range(256)) * 1024)[1000:101_000]
    async with guest.files.read("file", offset=10**9) as content:
        assert [data async for data in content] == []


async def test_names_of_any_bytes_are_written_listed_and_deleted(guest: Guest, workspace: Path) -> None:
    for name in NAMES:
        await guest.files.write(name, name)
    page = await guest.files.list(".")
    assert [os.fsencode(entry.name) for entry in page.entries] == sorted(NAMES)
    assert page.is_last
    for entry in page.entries:
        assert await guest.files.read_bytes(entry.name, most=1000) == os.fsencode(entry.name)
        await guest.files.delete(entry.name)
    assert os.listdir(workspace) == []


async def test_names_come_in_pages_in_the_order_of_their_bytes(guest: Guest, workspace: Path) -> None:
    names = [b"\xee\x80\x80", b"\xff"]  # as text they are the other way round
    for name in names:
        await guest.files.write(name, name)
    first = await guest.files.list(".", limit=1)
    second = await guest.files.list(".", limit=1, after=first.last)
    assert [os.fsencode(page.entries[0].name) for page in (first, second)] == names
    assert (first.is_last, second.is_last) == (False, True)


async def test_a_big_directory_comes_in_pages_without_a_gap(guest: Guest, workspace: Path) -> None:
    names = [f"{number:05}" + "ü" * 40 for number in range(700)]
    for name in names:
        (workspace / name).touch()
    seen: list[str] = []
    after, is_last, pages = None, False, 0
    while not is_last:
        page = await guest.files.list(".", after=after, limit=300)
        seen += [entry.name for entry in page.entries]
        after, is_last, pages = page.last, page.is_last, pages + 1
    assert seen == names
    assert pages > 2


async def test_nothing_is_seen_of_a_file_that_did_not_come_whole(guest: Guest, workspace: Path) -> None:
    (workspace / "file").write_text("old")

    async def content() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        assert (workspace / "file").read_text() == "old"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await guest.files.write("file", content())
    await guest.ping()
    assert (workspace / "file").read_text() == "old"
    assert os.listdir(workspace) == ["file"]


async def test_the_mode_of_a_file_stays_when_it_is_written_anew(guest: Guest, workspace: Path) -> None:
    (workspace / "run").write_text("old")
    (workspace / "run").chmod(0o755)
    await guest.files.write("run", b"new")
    assert stat.S_IMODE((workspace / "run").stat().st_mode) == 0o755


async def test_writing_through_a_link_writes_what_it_points_to(guest: Guest, workspace: Path) -> None:
    (workspace / "real").write_text("old")
    (workspace / "link").symlink_to("real")
    await guest.files.write("link", b"new")
    assert (workspace / "link").is_symlink()
    assert (workspace / "real").read_text() == "new"


async def test_rights_are_those_of_the_user(guest: Guest, workspace: Path) -> None:
    (workspace / "closed").write_text("secret")
    (workspace / "closed").chmod(0o600)
    (workspace / "locked").mkdir(mode=0o755)
    with pytest.raises(DeniedError):
        await guest.files.read_bytes("closed", most=100)
    with pytest.raises(DeniedError):
        await guest.files.write("locked/file", b"")
    assert await guest.files.read_bytes("closed", most=100, user="root") == b"secret"


async def test_what_is_no_regular_file_is_not_read(guest: Guest, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "pipe").chmod(0o666)
    for name in (".", "pipe", "/dev/zero"):
        with pytest.raises(ConflictError):
            await guest.files.read_bytes(name, most=100)
    await guest.ping()


async def test_a_tree_is_deleted_only_when_asked_to_and_links_are_not_followed(guest: Guest, workspace: Path) -> None:
    outside = workspace / "outside"
    outside.mkdir()
    (outside / "file").touch()
    await guest.files.mkdir("tree/a/b", parents=True)
    for number in range(450):
        await guest.files.write(f"tree/a/{number}", b"")
    (workspace / "tree/a/b/link").symlink_to(outside)
    with pytest.raises(ConflictError):
        await guest.files.delete("tree")
    await guest.files.delete("tree", recursive=True)
    assert not (workspace / "tree").exists()
    assert (outside / "file").exists()
    with pytest.raises(NotFoundError):
        await guest.files.delete("tree")
    await guest.files.delete("tree", missing_ok=True)


async def test_moving_does_not_replace_unless_asked_to(guest: Guest, workspace: Path) -> None:
    await guest.files.write("a", b"a")
    await guest.files.write("b", b"b")
    with pytest.raises(ConflictError):
        await guest.files.move("a", "b")
    await guest.files.move("a", "b", replace=True)
    assert os.listdir(workspace) == ["b"]
    assert (workspace / "b").read_text() == "a"


async def test_facts_of_a_link_and_of_what_it_points_to(guest: Guest, workspace: Path) -> None:
    await guest.files.write("file", b"12345")
    (workspace / "link").symlink_to("file")
    link, file = await guest.files.stat("link"), await guest.files.stat("link", follow=True)
    assert (link.kind, link.target) == ("link", "file")
    assert (file.kind, file.size, file.target) == ("file", 5, None)


async def test_paths_that_are_none_are_refused(guest: Guest) -> None:
    for path in ("", "a\0b"):
        with pytest.raises(InvalidError):
            await guest.files.stat(path)
    with pytest.raises(NotFoundError):
        await guest.files.stat("no/such/file")
