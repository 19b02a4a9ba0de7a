"""Environments over HTTP: defined, listed, refused with the name of what is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from outlive.base import MachineId
from outlive.machine.build_log import log_key
from outlive.machine.environments import begun, failed
from outlive.machine.lifecycle import Change
from outlive.storage.objects import open_objects

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as stack:
        yield stack


async def test_those_that_need_no_definition_are_there(stack: MachineApi) -> None:
    listed = (await stack.http.get("/v1/environments")).json()["items"]
    assert [(each["name"], each["state"]) for each in listed] == [
        *(("debian", "ready"), ("default", "ready"), ("host", "ready")),
    ]
    assert (await stack.http.get("/v1/environments/host")).json()["definition"]["base"] == "host"
    assert assert_problem(await stack.http.get("/v1/environments/web"), 404)["code"] == "environment.unknown"
    assert assert_problem(await stack.http.get("/v1/environments/%00"), 404)["code"] == "environment.unknown"


async def test_a_definition_that_needs_no_build_is_ready_at_once(stack: MachineApi) -> None:
    body = {"name": "small", "base": "host", "limits": {"memory_mib": 256}, "ports": [8000], "warm": 1}
    made = await stack.http.post("/v1/environments", json=body)
    assert (made.status_code, made.headers["location"]) == (202, "/v1/environments/small")
    assert (made.json()["state"], made.json()["warm"]) == ("ready", 1)
    assert (await stack.http.get("/v1/environments/small")).json() == made.json()
    machine = (await stack.http.post("/v1/machines", json={"environment": "small"})).json()
    assert (machine["environment"], machine["limits"]["memory_mib"], machine["ports"]) == ("small", 256, [8000])
    assert assert_problem(await stack.http.get("/v1/environments/small/log"), 404)["code"] == "environment.no_log"


async def test_a_machine_of_one_that_is_not_built_is_asked_for_again_later(stack: MachineApi) -> None:
    made = (await stack.http.post("/v1/environments", json={"name": "web", "install": ["true"]})).json()
    assert made["state"] == "building"
    answer = await stack.http.post("/v1/machines", json={"environment": "web"}, headers={"Idempotency-Key": "one"})
    assert assert_problem(answer, 503)["code"] == "environment.building"
    assert answer.headers["retry-after"] == "5"

    records = stack.node.records.environments
    await records.change(made["digest"], lambda found: failed(found, 1, "why", found.changed_at))
    answer = await stack.http.post("/v1/machines", json={"environment": "web"}, headers={"Idempotency-Key": "one"})
    assert assert_problem(answer, 409)["code"] == "environment.failed"
    assert (await stack.http.get("/v1/environments/web")).json()["reason"] == "why"
    again = (await stack.http.post("/v1/environments", json={"name": "web", "install": ["true"]})).json()
    assert (again["state"], again["tries"]) == ("building", 2)


async def test_the_log_of_a_build_is_read_from_where_one_is(stack: MachineApi, tmp_path: Path) -> None:
    made = (await stack.http.post("/v1/environments", json={"name": "web", "install": ["true"]})).json()
    key = log_key(made["digest"], 1)
    await open_objects(str(tmp_path / "objects")).replace(key, "$ true\nü\n".encode())
    await stack.node.records.environments.change(made["digest"], lambda found: begun(found, key, found.changed_at))
    whole = await stack.http.get("/v1/environments/web/log")
    assert (whole.text, whole.headers["content-type"]) == ("$ true\nü\n", "text/plain; charset=utf-8")
    assert (await stack.http.get("/v1/environments/web/log", params={"after": 7})).text == "ü\n"
    assert (await stack.http.get("/v1/environments/web/log", params={"after": 1000})).text == ""


async def test_a_build_that_is_tried_again_does_not_tell_what_the_try_before_said(
    stack: MachineApi, tmp_path: Path
) -> None:
    body = {"name": "web", "install": ["true"]}
    digest = (await stack.http.post("/v1/environments", json=body)).json()["digest"]
    records, objects = stack.node.records.environments, open_objects(str(tmp_path / "objects"))
    for number in (1, 2):
        key = log_key(digest, number)
        await objects.replace(key, b"of try %d\n" % number)
    await records.change(digest, lambda found: begun(found, log_key(digest, 1), found.changed_at))
    await records.change(digest, lambda found: failed(found, 1, "why", found.changed_at))
    assert (await stack.http.get("/v1/environments/web/log")).text == "of try 1\n"
    assert not (await stack.http.post("/v1/environments", json=body)).json()["has_log"]
    not_begun = assert_problem(await stack.http.get("/v1/environments/web/log"), 404)
    assert (not_begun["code"], "has not begun" in not_begun["detail"]) == ("environment.no_log", True)
    await records.change(digest, lambda found: begun(found, log_key(digest, 2), found.changed_at))
    assert (await stack.http.get("/v1/environments/web/log")).text == "of try 2\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Web"),
        ("name", "f" * 32),
        ("base", "windows"),
        ("base", "dir:relative"),
        ("install", [""]),
        ("install", ["true"] * 65),
        ("start", "true"),
        ("ports", [0]),
        ("ports", ["80"]),
        ("egress", ["no port"]),
        ("env", {"A B": "c"}),
        ("limits", {"memory_mib": 1}),
        ("limits", {"swap": 1}),
        ("warm", 65),
        ("user", "nobody"),
        ("unknown", 1),
    ],
)
async def test_what_is_wrong_with_a_definition_is_named(stack: MachineApi, field: str, value: object) -> None:
    answer = await stack.http.post("/v1/environments", json={"name": "web", field: value})
    assert answer.status_code == 422, answer.text
    assert field in answer.text


async def test_no_definition_reads_the_disk_of_a_host(stack: MachineApi) -> None:
    for base in ("dir:/root", "tar:/etc/shadow", "oci:/srv/image.tar"):
        answer = await stack.http.post("/v1/environments", json={"name": "thief", "base": base})
        assert assert_problem(answer, 403)["code"] == "environment.base_denied"
    assert assert_problem(await stack.http.get("/v1/environments/thief"), 404)["code"] == "environment.unknown"


async def test_a_create_whose_answer_was_lost_finds_the_machine_that_it_claimed(stack: MachineApi) -> None:
    made = (await stack.http.post("/v1/environments", json={"name": "small", "base": "host", "warm": 1})).json()
    warm = [(await stack.node.create()).id for _ in range(2)]
    for machine in warm:
        await put_into_pool(stack, machine, made["digest"])
    headers = {"Idempotency-Key": "lost"}
    first = await stack.http.post("/v1/machines", json={"environment": "small", "name": "mine"}, headers=headers)
    assert first.json()["id"] == warm[0]
    assert (first.json()["environment"], first.json()["name"]) == ("small", "mine")
    again = await stack.http.post("/v1/machines", json={"environment": "small", "name": "mine"}, headers=headers)
    assert again.json() == first.json()
    another = await stack.http.post("/v1/machines", json={"environment": "small"})
    assert another.json()["id"] == warm[1]


async def put_into_pool(stack: MachineApi, machine: MachineId, digest: str) -> None:
    await stack.node.records.machines.change(machine, lambda _: Change({"is_warm": True, "environment": digest}))
