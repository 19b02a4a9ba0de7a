"""Principals over HTTP: made with a token that is told once, and each may do what its rights say and no more."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import Api, follow, fresh_key, open_api
from outlive.base import PrincipalId, derive, new_principal_id
from outlive.governance import Claim, KeyScope, rights_of
from outlive.governance.identity import RIGHTS

pytestmark = pytest.mark.anyio


async def make(api: Api, name: str, kind: str = "person", **more: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/principals", json={"name": name, "kind": kind, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


@asynccontextmanager
async def acting_as(api: Api, made: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(base_url=api.url, headers=headers, timeout=20, trust_env=False) as http:
        yield http


def stored_in(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.glob("outlive.db*"))


async def test_a_principal_is_made_with_a_token_that_works_and_is_told_nowhere_else(api: Api) -> None:
    answer = await api.http.post("/v1/principals", json={"name": "Anna", "kind": "person"})
    made = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/principals/{made['id']}"
    assert (made["name"], made["kind"], made["rights"]) == ("Anna", "person", ["observe", "type", "take"])
    assert (made["is_owner"], made["deleted_at"], made["hint"]) == (False, None, None)
    assert len(made["token"]) >= 32
    shown = {name: value for name, value in made.items() if name not in ("token", "hint")}
    async with acting_as(api, made) as anna:
        assert (await anna.get("/v1/principals/me")).json() == shown
        assert (await anna.get(f"/v1/principals/{made['id']}")).json() == shown
    assert (await api.http.get(f"/v1/principals/{made['id']}")).json() == shown
    assert made["token"] not in (await api.http.get("/v1/principals")).text


async def test_the_owner_may_do_everything(api: Api) -> None:
    me = (await api.http.get("/v1/principals/me")).json()
    assert (me["name"], me["is_owner"], me["rights"]) == ("owner", True, [*RIGHTS])


async def test_principals_are_listed_newest_first_in_pages_and_found_by_name(api: Api) -> None:
    names = [(await make(api, f"agent {number}", "agent"))["name"] for number in range(5)]
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.http.get("/v1/principals", params={"limit": 2, **cursor})).json()
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == [*names[::-1], "owner"]
    by_name = (await api.http.get("/v1/principals", params={"name": "AGENT 3"})).json()
    assert [item["name"] for item in by_name["items"]] == ["agent 3"]
    assert (await api.http.get("/v1/principals", params={"name": "nobody"})).json() == {"items": [], "next": None}
    assert_problem(await api.http.get("/v1/principals", params={"cursor": "x"}), 422)


async def test_a_deleted_principal_is_shut_out_at_once_and_what_it_did_keeps_its_name(api: Api) -> None:
    made = await make(api, "anna")
    async with acting_as(api, made) as anna:
        assert (await anna.get("/v1/conversations")).status_code == 200
        for _ in range(2):
            assert (await api.http.delete(f"/v1/principals/{made['id']}")).status_code == 204
        assert assert_problem(await anna.get("/v1/conversations"), 401)["code"] == "token.unknown"
    gone = (await api.http.get(f"/v1/principals/{made['id']}")).json()
    assert gone["name"] == "anna"
    assert gone["deleted_at"] is not None
    assert [item["name"] for item in (await api.http.get("/v1/principals")).json()["items"]] == ["owner"]
    assert (await make(api, "anna"))["id"] != made["id"]


async def test_the_owner_cannot_be_deleted_and_nobody_is_not_found(api: Api) -> None:
    owner = (await api.http.get("/v1/principals/me")).json()
    assert assert_problem(await api.http.delete(f"/v1/principals/{owner['id']}"), 409)["code"] == "principal.owner"
    for id in (new_principal_id(), "x", "me"):
        assert assert_problem(await api.http.delete(f"/v1/principals/{id}"), 404)["code"] == "principal.unknown"
    assert_problem(await api.http.get(f"/v1/principals/{new_principal_id()}"), 404)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "Anna", "kind": "agent"}, 409, "principal.name_taken"),
        ({"name": "owner", "kind": "person"}, 409, "principal.name_taken"),
        ({"name": " b", "kind": "person"}, 422, "principal.name"),
        ({"name": "\u202eb", "kind": "person"}, 422, "principal.name"),
        ({"name": "", "kind": "person"}, 422, "request.invalid"),
        ({"name": "b" * 65, "kind": "person"}, 422, "request.invalid"),
        ({"name": "b", "kind": "robot"}, 422, "request.invalid"),
        ({"name": "b", "kind": "person", "rights": []}, 422, "request.invalid"),
        ({"name": "b", "kind": "person", "rights": ["everything"]}, 422, "request.invalid"),
        ({"name": "b", "kind": "person", "token": "mine"}, 422, "request.invalid"),
    ],
)
async def test_what_cannot_be_made_is_refused_and_nobody_is_made(
    api: Api, body: dict[str, Any], status: int, code: str
) -> None:
    await make(api, "anna")
    assert assert_problem(await api.http.post("/v1/principals", json=body), status)["code"] == code
    assert len((await api.http.get("/v1/principals")).json()["items"]) == 2


async def test_the_same_key_again_makes_nobody_and_tells_no_token(api: Api, tmp_path: Path) -> None:
    body, key = {"name": "ci", "kind": "service"}, fresh_key()
    first = await api.http.post("/v1/principals", json=body, headers=key)
    again = await api.http.post("/v1/principals", json=body, headers=key)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.status_code == 201
    assert again.headers["location"] == first.headers["location"]
    assert again.json() == {**first.json(), "token": None, "hint": again.json()["hint"]}
    assert "new Idempotency-Key" in again.json()["hint"]
    assert len((await api.http.get("/v1/principals")).json()["items"]) == 2
    stored = stored_in(tmp_path)
    assert b"new Idempotency-Key" in stored  # what was recorded of the answer
    assert first.json()["token"].encode() not in stored


async def test_a_principal_whose_maker_died_before_answering_gets_a_token_when_asked_again(api: Api) -> None:
    owner = (await api.http.get("/v1/principals/me")).json()
    body, key = b'{"name": "ci", "kind": "service"}', fresh_key()
    keys = api.parts.idempotency._keys
    scope = KeyScope(PrincipalId(owner["id"]), "POST", "/v1/principals", key["idempotency-key"])
    claim = await keys.claim(scope, hashlib.sha256(body).digest())
    assert isinstance(claim, Claim)
    id = PrincipalId(derive("prin", claim.operation))
    rights = rights_of("service")
    await api.parts.principals.create(id, name="ci", kind="service", rights=rights, token="seen by nobody")
    await keys.release(claim)
    made = (await api.http.post("/v1/principals", content=body, headers=key)).json()
    assert made["id"] == id
    async with acting_as(api, made) as http:
        assert (await http.get("/v1/principals/me")).json()["id"] == id


async def test_only_those_with_admin_see_and_change_principals(api: Api) -> None:
    anna, ben = await make(api, "anna"), await make(api, "ben")
    async with acting_as(api, anna) as http:
        for answer in (
            await http.post("/v1/principals", json={"name": "c", "kind": "agent"}),
            await http.get("/v1/principals"),
            await http.get(f"/v1/principals/{ben['id']}"),
            await http.get(f"/v1/principals/{new_principal_id()}"),
            await http.delete(f"/v1/principals/{ben['id']}"),
            await http.delete(f"/v1/principals/{anna['id']}"),
        ):
            assert assert_problem(answer, 403)["code"] == "principal.denied"


async def test_nobody_can_give_what_they_do_not_have(api: Api) -> None:
    admin = await make(api, "admin", "service", rights=["admin"])
    assert admin["rights"] == ["observe", "type", "admin"]
    async with acting_as(api, admin) as http:
        refused = await http.post("/v1/principals", json={"name": "anna", "kind": "person"})
        assert assert_problem(refused, 403)["code"] == "principal.rights"
        allowed = {"name": "anna", "kind": "person", "rights": ["type"]}
        assert (await http.post("/v1/principals", json=allowed)).json()["rights"] == ["observe", "type"]


async def test_an_agent_with_admin_makes_and_deletes_agents_only(api: Api) -> None:
    agent = await make(api, "agent", "agent", rights=["take", "admin"])
    anna = await make(api, "anna")
    async with acting_as(api, agent) as http:
        refused = await http.post("/v1/principals", json={"name": "a person", "kind": "person"})
        assert assert_problem(refused, 403)["code"] == "principal.denied"
        made = await http.post("/v1/principals", json={"name": "another", "kind": "agent"})
        assert made.status_code == 201
        kept = await http.delete(f"/v1/principals/{anna['id']}")
        assert assert_problem(kept, 403)["code"] == "principal.denied"
        assert (await http.delete(f"/v1/principals/{made.json()['id']}")).status_code == 204
    async with acting_as(api, anna) as http:
        assert (await http.get("/v1/principals/me")).status_code == 200


async def test_a_message_is_sent_in_the_name_of_whoever_sent_it(api: Api) -> None:
    anna, bot = await make(api, "anna"), await make(api, "bot", "agent")
    conversation = await api.create()
    for sender in (anna, bot):
        async with acting_as(api, sender) as http:
            sent = await http.post(f"/v1/conversations/{conversation}/messages", json={"text": "hello"})
            assert sent.status_code == 202
    events = (await api.http.get(f"/v1/conversations/{conversation}/events")).json()["items"]
    assert [each["actor"] for each in events if each["type"] == "message.sent"] == [anna["id"], bot["id"]]


async def test_an_idempotency_key_of_one_principal_is_not_anothers(api: Api) -> None:
    anna = await make(api, "anna")
    conversation = await api.create()
    path, key = f"/v1/conversations/{conversation}/messages", fresh_key()
    first = await api.http.post(path, json={"text": "hello"}, headers=key)
    async with acting_as(api, anna) as http:
        second = await http.post(path, json={"text": "hello"}, headers=key)
    assert second.json()["seq"] != first.json()["seq"]


async def test_who_may_only_observe_may_look_at_everything_and_change_nothing(api: Api) -> None:
    conversation = await api.create()
    await api.send(conversation, "hello")
    wallboard = await make(api, "wallboard", "device", rights=["observe"])
    routes = {(method, route.path) for route in api.app.routes for method in route.methods}
    changing = [(method, path) for method, path in routes if method not in ("GET", "HEAD", "OPTIONS")]
    assert len(changing) > 20
    async with acting_as(api, wallboard) as http:
        for method, path in changing:
            answer = await http.request(method, path.replace("{conversation}", conversation))
            assert assert_problem(answer, 403)["code"] == "rights.observe_only"
        for path in ("", f"/{conversation}", f"/{conversation}/events", f"/{conversation}/transcript"):
            assert (await http.get(f"/v1/conversations{path}")).status_code == 200
        assert (await http.get("/v1/principals/me")).json()["rights"] == ["observe"]
    assert (await api.http.get(f"/v1/conversations/{conversation}")).json()["head"] == 2


@pytest.mark.parametrize(("busy", "ping_s"), [(False, 30.0), (False, 0.05), (True, 30.0)])
async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path, busy: bool, ping_s: float) -> None:
    async with open_api(tmp_path, recheck_s=0.2, ping_s=ping_s) as api:
        anna = await make(api, "anna")
        conversation = await api.create()

        async def chatter() -> None:
            while True:
                await api.send(conversation)

        async with (
            anyio.create_task_group() as group,
            follow(api, conversation, authorization=f"Bearer {anna['token']}") as hers,
            follow(api, conversation) as owners,
        ):
            if busy:
                group.start_soon(chatter)
            await hers.take(1)
            await owners.take(1)
            await api.http.delete(f"/v1/principals/{anna['id']}")
            with anyio.fail_after(20):
                while await hers.next() is not None:
                    pass
            await api.send(conversation, "still there?")
            await owners.take(1)
            group.cancel_scope.cancel()


@pytest.fixture
async def machines(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path, recheck_s=0.2) as machines:
        yield machines


async def test_who_may_only_observe_sees_pages_of_a_server_in_a_machine_and_sends_it_nothing(
    machines: MachineApi,
) -> None:
    machine = await machines.create()
    address = f"/v1/machines/{machine}/ports/1/"  # nobody listens there: whoever gets that far is told so
    wallboard = await make(machines.api, "wallboard", "device", rights=["observe"])
    async with acting_as(machines.api, wallboard) as http:
        for method in ("GET", "HEAD"):
            assert (await http.request(method, address)).status_code == 503
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            for path in (address, address.rstrip("/")):
                assert assert_problem(await http.request(method, path), 403)["code"] == "rights.observe_only"
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        assert assert_problem(await http.get(address, headers=upgrade), 403)["code"] == "rights.observe_only"


async def test_a_websocket_ends_when_its_token_is_revoked(machines: MachineApi) -> None:
    machine = await machines.create()
    anna = await make(machines.api, "anna")

    async def hold(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            async for piece in stream:
                await stream.send(piece)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
        await anyio.connect_tcp(*machines.api.address) as client,
    ):
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        group.start_soon(listener.serve, hold)
        head = f"GET /v1/machines/{machine}/ports/{port}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += f"Authorization: Bearer {anna['token']}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        with anyio.fail_after(20):
            await client.send(head.encode())
            assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
            await client.send(b"ping")
            assert await client.receive() == b"ping"
            await machines.http.delete(f"/v1/principals/{anna['id']}")
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await client.receive()
        group.cancel_scope.cancel()
