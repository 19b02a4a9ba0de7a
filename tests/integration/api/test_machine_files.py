"""Files in machines over HTTP: raw bytes both ways, ranges, and paths by rule."""

import http.client
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import TOKEN
from outlive.base import MachineId

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


def _folder(api: MachineApi, machine: str) -> Path:
    return api.node.machines.folder(MachineId(machine))


async def test_a_file_of_any_size_goes_both_ways_unchanged(api: MachineApi) -> None:
    machine = await api.create()
    place = f"/v1/machines/{machine}/files/workspace/deep/big"
    big = bytes(range(256)) * 128 * 1024  # 32 MiB: more than a body may have elsewhere

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 1024 * 1024):
            yield big[start : start + 1024 * 1024]

    written = await api.http.put(f"{place}?mode=0600", content=pieces())
    assert written.json() == {"path": "/workspace/deep/big", "size": len(big)}
    read = await api.http.get(place)
    assert read.content == big
    assert read.headers["content-length"] == str(len(big))
    assert "sandbox" in read.headers["content-security-policy"]
    assert (await api.http.get(f"{place}?stat=1")).json()["mode"] == 0o600


@pytest.mark.parametrize(
    ("asked", "got", "told"),
    [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ],
)
async def test_a_range_is_honoured(api: MachineApi, asked: str, got: bytes, told: str) -> None:
    machine = await api.create()
    await api.http.put(f"/v1/machines/{machine}/files/workspace/f", content=b"0123456789")
    answer = await api.http.get(f"/v1/machines/{machine}/files/workspace/f", headers={"range": asked})
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, got, told)


async def test_a_range_that_is_not_there_or_none_is_told_or_ignored(api: MachineApi) -> None:
    machine = await api.create()
    place = f"/v1/machines/{machine}/files/workspace/f"
    await api.http.put(place, content=b"0123456789")
    for asked in ("bytes=10-", "bytes=-0"):
        assert assert_problem(await api.http.get(place, headers={"range": asked}), 416)["size"] == 10
    for asked in ("bytes=1-2,4-5", "lines=1-2", "bytes=5-2", "bytes=-", "bytes=a-b"):
        answer = await api.http.get(place, headers={"range": asked})
        assert (answer.status_code, answer.content) == (200, b"0123456789")


async def test_a_directory_is_listed_and_never_read(api: MachineApi) -> None:
    machine = await api.create()
    folder = _folder(api, machine) / "workspace"
    (folder / "sub").mkdir()
    (folder / "a").write_bytes(b"12")
    (folder / "link").symlink_to("a")
    listed = (await api.http.get(f"/v1/machines/{machine}/files/workspace?list=1")).json()["items"]
    shown = [(each["name"], each["kind"], each["target"]) for each in listed]
    assert shown == [("a", "file", None), ("link", "symlink", "a"), ("sub", "directory", None)]
    assert (await api.http.get(f"/v1/machines/{machine}/files/?list=1")).json()["items"][0]["name"] == "workspace"
    assert_problem(await api.http.get(f"/v1/machines/{machine}/files/workspace"), 409)
    assert assert_problem(await api.http.get(f"/v1/machines/{machine}/files/none"), 404)["code"] == "file.unknown"


async def test_a_file_is_deleted(api: MachineApi) -> None:
    machine = await api.create()
    place = f"/v1/machines/{machine}/files/workspace/f"
    await api.http.put(place, content=b"x")
    assert (await api.http.delete(place)).status_code == 204
    assert_problem(await api.http.delete(place), 404)


async def _raw(api: MachineApi, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    """A request whose target goes out as it is written: other clients tidy it up."""

    def call() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*api.api.address, timeout=20)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            connection.putheader("Authorization", f"Bearer {TOKEN}")
            connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(call)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("plain", "plain"),
        ("/workspace/absolute", "absolute"),
        ("%2Fworkspace%2Fencoded", "encoded"),
        ("./workspace/././dots", "dots"),
        ("workspace//twice", "twice"),
        ("workspace/line%0Abreak", "line\nbreak"),
        ("workspace/100%25", "100%"),
        ("workspace/%252e%252e", "%2e%2e"),
        ("workspace/...", "..."),
        ("workspace/sp%20ace%3F%23%26", "sp ace?#&"),
        ("workspace/%C3%A9", "é"),
    ],
)
async def test_a_path_means_exactly_one_file(api: MachineApi, written: str, name: str) -> None:
    machine = await api.create()
    written = f"workspace/{written}" if written == "plain" else written
    status, _ = await _raw(api, "PUT", f"/v1/machines/{machine}/files/{written}", b"content")
    assert status == 200
    folder = _folder(api, machine)
    assert [str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()] == [f"workspace/{name}"]
    assert await _raw(api, "GET", f"/v1/machines/{machine}/files/{written}") == (200, b"content")


@pytest.mark.parametrize(
    "written",
    [
        "workspace/../../../etc/passwd",
        "..",
        "%2e%2e/x",
        "workspace/%2e./x",
        "workspace%2f..%2fx",
        "workspace/a%00b",
        "workspace/%ff",
        "workspace/slash/",
        "workspace/slash/.",
        "",
        "/",
        "workspace/" + "n" * 256,
        "a/" * 2_100 + "x",
    ],
)
async def test_a_path_that_is_a_trick_is_refused_and_nothing_is_written(api: MachineApi, written: str) -> None:
    machine = await api.create()
    status, told = await _raw(api, "PUT", f"/v1/machines/{machine}/files/{written}", b"content")
    assert status == 422
    assert b'"file.path"' in told
    assert [each for each in _folder(api, machine).parent.rglob("*") if each.is_file()] == []


async def test_reading_a_file_wakes_the_machine(api: MachineApi) -> None:
    machine = await api.create()
    await api.http.put(f"/v1/machines/{machine}/files/workspace/f", content=b"x")
    await api.do(machine, "hibernate")
    assert (await api.http.get(f"/v1/machines/{machine}/files/workspace/f")).content == b"x"


async def test_a_body_that_is_cut_off_leaves_the_old_file(api: MachineApi) -> None:
    machine = await api.create()
    place = f"/v1/machines/{machine}/files/workspace/f"
    await api.http.put(place, content=b"old")

    def cut() -> None:
        connection = http.client.HTTPConnection(*api.api.address, timeout=20)
        connection.putrequest("PUT", place)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"new")
        connection.close()

    await anyio.to_thread.run_sync(cut)
    assert (await api.http.get(place)).content == b"old"


async def test_files_are_for_those_with_a_token(api: MachineApi) -> None:
    machine = await api.create()
    wrong = {"authorization": "Bearer wrong"}
    place = f"/v1/machines/{machine}/files/workspace/f"
    assert_problem(await api.http.put(place, content=b"x", headers=wrong), 401)
    assert_problem(await api.http.get(place, headers=wrong), 401)
