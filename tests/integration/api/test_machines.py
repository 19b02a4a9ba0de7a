"""Machines over HTTP: their life, their commands, and what is refused."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually
from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import fresh_key, open_api
from outlive.base import ConversationId, MachineId, derive, new_effect_id, new_machine_id
from outlive.machine import lifecycle

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_a_machine_is_running_when_its_creation_is_answered(api: MachineApi) -> None:
    answer = await api.http.post("/v1/machines", json={"name": "one"})
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/v1/machines/{made['id']}"
    assert (made["state"], made["generation"], made["environment"], made["name"]) == ("running", 1, "default", "one")
    assert made["node"] == api.node.machines.node
    assert (await api.http.get(f"/v1/machines/{made['id']}")).json() == made


async def test_the_same_creation_again_makes_no_second_machine(api: MachineApi) -> None:
    key = fresh_key()
    first = await api.http.post("/v1/machines", json={}, headers=key)
    again = await api.http.post("/v1/machines", json={}, headers=key)
    assert again.json() == first.json()
    assert len((await api.http.get("/v1/machines")).json()["items"]) == 1
    assert_problem(await api.http.post("/v1/machines", json={"name": "other"}, headers=key), 409)


async def test_a_machine_that_is_made_for_a_conversation_is_its_machine_unless_it_has_one(api: MachineApi) -> None:
    conversation = (await api.http.post("/v1/conversations", json={})).json()["id"]
    body, key = {"conversation": conversation}, fresh_key()
    made = (await api.http.post("/v1/machines", json=body, headers=key)).json()
    assert (await api.http.post("/v1/machines", json=body, headers=key)).json() == made
    another = await api.create(conversation=conversation)
    assert (await api.http.get(f"/v1/conversations/{conversation}")).json()["machine"] == made["id"]
    events = (await api.http.get(f"/v1/conversations/{conversation}/events")).json()["items"]
    assert [each["data"] for each in events if each["type"] == "machine.attached"] == [{"machine": made["id"]}]
    listed = (await api.http.get(f"/v1/machines?conversation={conversation}")).json()["items"]
    assert [each["id"] for each in listed] == [another, made["id"]]
    assert (await api.http.delete(f"/v1/machines/{made['id']}")).status_code == 200
    await api.create(conversation=conversation)
    assert (await api.http.get(f"/v1/conversations/{conversation}")).json()["machine"] == made["id"]


async def test_what_a_conversation_made_itself_and_never_had_goes_when_it_is_given_a_machine(api: MachineApi) -> None:
    conversation = (await api.http.post("/v1/conversations", json={})).json()["id"]
    own = MachineId(derive("mach", conversation))
    like = await api.node.keeper.get(MachineId(await api.create()))
    await api.node.keeper.create(
        own, owner=like.owner, environment="default", spec=like.spec, conversation=ConversationId(conversation)
    )
    given = await api.create(conversation=conversation)
    listed = (await api.http.get(f"/v1/machines?conversation={conversation}")).json()["items"]
    assert [each["id"] for each in listed] == [given]


async def test_an_archived_conversation_gets_no_machine_and_what_it_was_given_before_is_told(api: MachineApi) -> None:
    conversation = (await api.http.post("/v1/conversations", json={})).json()["id"]
    key = fresh_key()
    made = await api.http.post("/v1/machines", json={"conversation": conversation}, headers=key)
    await api.http.delete(f"/v1/conversations/{conversation}")
    refused = await api.http.post("/v1/machines", json={"conversation": conversation})
    assert assert_problem(refused, 409)["code"] == "conversation.archived"
    again = await api.http.post("/v1/machines", json={"conversation": conversation}, headers=key)
    assert again.json() == made.json()
    listed = (await api.http.get(f"/v1/machines?conversation={conversation}")).json()["items"]
    assert [each["id"] for each in listed] == [made.json()["id"]]


async def test_lists_are_paged_newest_first_and_filtered(api: MachineApi) -> None:
    made = [await api.create() for _ in range(3)]
    await api.do(made[0], "hibernate")
    first = (await api.http.get("/v1/machines?limit=2")).json()
    second = (await api.http.get(f"/v1/machines?limit=2&cursor={first['next']}")).json()
    assert [each["id"] for each in [*first["items"], *second["items"]]] == made[::-1]
    assert second["next"] is None
    asleep = (await api.http.get("/v1/machines?state=hibernated,lost")).json()
    assert [each["id"] for each in asleep["items"]] == [made[0]]
    assert_problem(await api.http.get("/v1/machines?state=sleepy"), 422)
    assert_problem(await api.http.get("/v1/machines?cursor=x"), 422)


async def test_an_environment_that_nobody_knows_is_told(api: MachineApi) -> None:
    problem = assert_problem(await api.http.post("/v1/machines", json={"environment": "nowhere"}), 404)
    assert problem["code"] == "environment.unknown"
    assert (await api.http.post("/v1/machines", json={"environment": "host"})).json()["base"] == "host"


async def test_the_verbs_answer_when_it_is_so(api: MachineApi) -> None:
    machine = await api.create()
    assert (await api.do(machine, "pause"))["state"] == "paused"
    problem = assert_problem(await api.http.post(f"/v1/machines/{machine}/exec", json={"command": "true"}), 409)
    assert problem["code"] == "machine.paused"
    assert (await api.do(machine, "resume"))["state"] == "running"
    assert (await api.do(machine, "checkpoint"))["id"].startswith("ckpt_")
    slept = await api.do(machine, "hibernate")
    assert (slept["state"], slept["node"]) == ("hibernated", None)
    woken = await api.do(machine, "wake")
    assert (woken["state"], woken["generation"]) == ("running", 2)
    kinds = [each["kind"] for each in (await api.http.get(f"/v1/machines/{machine}/events")).json()["items"]]
    assert kinds == ["created", "booted", "paused", "resumed", "checkpointed", "checkpointed", "hibernated", "woken"]
    assert len((await api.http.get(f"/v1/machines/{machine}/checkpoints")).json()["items"]) == 2
    deleted = await api.http.delete(f"/v1/machines/{machine}")
    assert deleted.json()["state"] == "deleted"
    assert assert_problem(await api.http.get(f"/v1/machines/{machine}"), 404)["code"] == "machine.deleted"
    assert (await api.http.get("/v1/machines")).json()["items"] == []


async def test_a_fork_is_one_machine_and_with_a_count_a_list(api: MachineApi) -> None:
    machine = await api.create()
    one = await api.do(machine, "fork")
    assert (one["state"], one["environment"]) == ("running", "default")
    assert one["origin"].startswith("ckpt_")
    key = fresh_key()
    many = await api.http.post(f"/v1/machines/{machine}/fork", json={"count": 3}, headers=key)
    assert len({each["id"] for each in many.json()["items"]}) == 3
    again = await api.http.post(f"/v1/machines/{machine}/fork", json={"count": 3}, headers=key)
    assert again.json() == many.json()
    assert_problem(await api.http.post(f"/v1/machines/{machine}/fork", json={"count": 33}), 422)


async def test_a_command_is_answered_as_promised(api: MachineApi) -> None:
    machine = await api.create()
    done = await api.exec(machine, "echo $NAME; echo err >&2; exit 7", env={"NAME": "x"}, effect_id="mine-1")
    wanted = {
        "effect_id": "mine-1",
        "outcome": "finished",
        "exit_code": 7,
        "stdout": "x\n",
        "stderr": "err\n",
        "truncated": False,
    }
    assert {name: done[name] for name in wanted} == wanted
    plain = await api.http.post(f"/v1/machines/{machine}/exec", json={"argv": ["printf", "%s", "a b"]})
    assert plain.json()["stdout"] == "a b"


async def test_a_command_that_takes_too_long_says_timeout(api: MachineApi) -> None:
    machine = await api.create()
    done = await api.exec(machine, "sleep 60", timeout_s=0.2)
    assert (done["outcome"], done["exit_code"]) == ("timeout", None)


async def test_the_same_effect_never_runs_twice_and_another_command_is_refused(api: MachineApi) -> None:
    machine = await api.create()
    first = await api.exec(machine, "echo x >> f; wc -l < f", effect_id="e1")
    assert await api.exec(machine, "echo x >> f; wc -l < f", effect_id="e1") == first
    refused = await api.http.post(f"/v1/machines/{machine}/exec", json={"command": "true", "effect_id": "e1"})
    assert assert_problem(refused, 409)["code"] == "effect.other_request"


async def test_an_idempotency_key_makes_a_command_run_once_too(api: MachineApi) -> None:
    machine, key = await api.create(), fresh_key()
    body = {"command": "echo x >> f; wc -l < f"}
    answers = [await api.http.post(f"/v1/machines/{machine}/exec", json=body, headers=key) for _ in range(2)]
    assert [answer.json()["stdout"] for answer in answers] == ["1\n", "1\n"]


async def test_a_command_wakes_a_machine_and_what_is_known_does_not(api: MachineApi) -> None:
    machine = await api.create()
    known = await api.exec(machine, "echo kept > f", effect_id="e1")
    await api.do(machine, "hibernate")
    assert await api.exec(machine, "echo kept > f", effect_id="e1") == known
    refused = await api.http.post(f"/v1/machines/{machine}/exec", json={"command": "other", "effect_id": "e1"})
    assert assert_problem(refused, 409)["code"] == "effect.other_request"
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "hibernated"
    assert (await api.exec(machine, "cat f"))["stdout"] == "kept\n"
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "running"


async def test_a_command_of_a_machine_that_died_is_lost_for_ever(api: MachineApi) -> None:
    machine = MachineId(await api.create())
    started = await api.exec(machine, "sleep 60", effect_id="e1", background=True)
    assert started["outcome"] == "started"
    now, node = api.api.parts.clock.now(), api.node.machines.node
    await api.node.records.machines.change(
        machine, lambda record: lifecycle.declare_lost(record, node, now, reason="its sandbox is gone")
    )
    for _ in range(2):
        lost = await api.exec(machine, "sleep 60", effect_id="e1")
        assert (lost["outcome"], lost["exit_code"]) == ("lost", None)
    refused = await api.http.post(f"/v1/machines/{machine}/exec", json={"command": "true"})
    assert assert_problem(refused, 409)["code"] == "machine.lost"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": "true", "argv": ["true"]},
        {"argv": []},
        {"argv": [""]},
        {"command": "a\0b"},
        {"command": "true", "env": {"A=B": "c"}},
        {"command": "true", "timeout_s": 0},
        {"command": "true", "timeout_s": "5"},
        {"command": "true", "effect_id": "a/b"},
        {"command": "true", "effect_id": ""},
        {"command": "true", "effect_id": "x" * 129},
        {"command": "true", "unknown": 1},
        {"command": "x" * 200_000},
        {"command": "true", "user": "nobody"},
    ],
)
async def test_a_command_that_is_none_is_refused_before_anything_happens(api: MachineApi, body: dict[str, Any]) -> None:
    machine = await api.create()
    assert_problem(await api.http.post(f"/v1/machines/{machine}/exec", json=body), 422)
    assert (await api.http.get(f"/v1/machines/{machine}/effects")).json() == {"items": [], "next": None}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("machine", ["mach_nope", "x", "mach_" + "0" * 32, "conv_" + "0" * 32])
async def test_a_machine_that_nobody_knows_is_not_found(api: MachineApi, method: str, machine: str) -> None:
    assert assert_problem(await api.http.request(method, f"/v1/machines/{machine}"), 404)["code"] == "machine.unknown"


async def test_output_comes_live_as_lines_and_the_result_is_last(api: MachineApi) -> None:
    machine = await api.create()
    body = {"command": "printf '\\377'; echo e >&2", "effect_id": "e1"}
    async with api.http.stream(
        "POST", f"/v1/machines/{machine}/exec", json=body, headers={"accept": "application/x-ndjson"}
    ) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) async for line in answer.aiter_lines() if line]
    assert lines[0] == {"effect_id": "e1"}
    printed = {line["stream"]: base64.b64decode(line["data"]) for line in lines[1:-1]}
    assert printed == {"stdout": b"\xff", "stderr": b"e\n"}
    assert (lines[-1]["result"]["outcome"], lines[-1]["result"]["exit_code"]) == ("finished", 0)


async def test_a_streamed_command_that_is_refused_is_a_problem(api: MachineApi) -> None:
    answer = await api.http.post(
        f"/v1/machines/{new_machine_id()}/exec", json={"command": "true"}, headers={"accept": "application/x-ndjson"}
    )
    assert_problem(answer, 404)


async def test_a_background_command_takes_stdin_and_signals_and_is_listed(api: MachineApi) -> None:
    machine, effect = await api.create(), new_effect_id()
    await api.exec(machine, "read line; echo $line > heard; sleep 60", background=True, effect_id=effect)
    place = f"/v1/machines/{machine}/effects/{effect}"
    for _ in range(2):  # with an offset it is typed once
        typed = await api.http.post(f"{place}/stdin", json={"text": "hi\n", "offset": 0})
        assert typed.json() == {"offset": 3}
    hole = await api.http.post(f"{place}/stdin", json={"text": "hi\n", "offset": 4})
    assert (hole.status_code, hole.json()["code"]) == (409, "effect.stdin_hole")
    assert (await api.http.post(f"{place}/stdin", json={"end": True})).status_code == 200

    async def is_heard() -> bool:
        return bool((await api.http.get(f"/v1/machines/{machine}/files/workspace/heard")).content == b"hi\n")

    await eventually(is_heard)
    listed = (await api.http.get(f"/v1/machines/{machine}/processes")).json()["items"]
    assert [each["effect"] for each in listed] == [effect]
    assert (await api.http.post(f"{place}/signal", json={"signal": 9})).status_code == 204

    async def is_over() -> bool:
        return not (await api.http.get(f"/v1/machines/{machine}/processes")).json()["items"]

    await eventually(is_over)
    assert (await api.http.get(place)).json()["outcome"] == "started"
    assert_problem(await api.http.get(f"/v1/machines/{machine}/effects/none"), 404)
    assert_problem(await api.http.post(f"{place}/signal", json={"signal": 0}), 422)


async def test_the_whole_output_is_there_as_bytes(api: MachineApi) -> None:
    machine = await api.create()
    await api.exec(machine, "echo out", effect_id="e1")
    assert (await api.http.get(f"/v1/machines/{machine}/effects/e1/stdout")).content == b"out\n"
    assert_problem(await api.http.get(f"/v1/machines/{machine}/effects/e1/stdall"), 404)


async def test_what_runs_is_not_asked_of_a_machine_that_sleeps(api: MachineApi) -> None:
    machine = await api.create()
    await api.do(machine, "hibernate")
    for what in ("processes", "ports"):
        problem = assert_problem(await api.http.get(f"/v1/machines/{machine}/{what}"), 409)
        assert problem["code"] == "machine.not_running"


async def test_nodes_say_what_they_have_room_for(api: MachineApi) -> None:
    [node] = (await api.http.get("/v1/nodes")).json()["items"]
    assert (node["id"], node["capacity"]) == (api.node.machines.node, {"machines": 10})
    assert node["has_lease"]


async def test_without_a_node_that_has_a_lease_nobody_waits_for_a_machine(api: MachineApi) -> None:
    nodes = api.node.records.nodes
    [node] = await nodes.list()
    await nodes.renew(node, lease_s=-1)
    assert not (await api.http.get("/v1/nodes")).json()["items"][0]["has_lease"]
    assert assert_problem(await api.http.post("/v1/machines", json={}), 503)["code"] == "node.none"


async def test_an_api_without_machines_says_so(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for answer in (await api.http.get("/v1/machines"), await api.http.post("/v1/machines", json={})):
            assert assert_problem(answer, 503)["code"] == "machines.off"


async def test_many_that_use_a_sleeping_machine_wake_it_once(api: MachineApi) -> None:
    machine = await api.create()
    await api.do(machine, "hibernate")

    async def use() -> None:
        assert (await api.exec(machine, "true"))["exit_code"] == 0

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(use)
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["generation"] == 2
