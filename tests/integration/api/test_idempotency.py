"""A POST that is sent again is not done again: over HTTP, at once, after failures, and after the process died."""

import hashlib
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from eventually import eventually
from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, Api, open_api
from outlive.base import ConversationId, UnavailableError, new_conversation_id, new_operation_id
from outlive.governance import Claim, IdempotencyKeys, KeyScope

pytestmark = pytest.mark.anyio


def keys_of(api: Api) -> IdempotencyKeys:
    return api.parts.idempotency._keys


async def posts(api: Api) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every POST there is: path, a body, and another body."""
    conversation = await api.create()
    agent = {"name": "coder", "model": "demo:", "instructions": "Help.", "tools": []}
    return [
        ("/v1/conversations", {"title": "a"}, {"title": "b"}),
        (f"/v1/conversations/{conversation}/messages", {"text": "a"}, {"text": "b"}),
        (f"/v1/conversations/{conversation}/fork", {"at": 1}, {}),
        (f"/v1/conversations/{conversation}/compact", {"keep": 4}, {}),
        ("/v1/agents", agent, agent | {"instructions": "Other."}),
    ]


async def effects(api: Api) -> tuple[int, int]:
    """How many conversations there are, and how many events in them."""
    found = (await api.http.get("/v1/conversations", params={"limit": 1000})).json()["items"]
    return len(found), sum(each["head"] for each in found)


async def test_the_matrix_covers_every_post_of_json_that_needs_no_machine_and_no_loop(api: Api) -> None:
    """The others have tests of their own."""
    conversation = "/v1/conversations/{conversation}"
    others = ("/v1/machines", "/v1/environments", "/v1/principals", "/v1/terminals", "/v1/blobs", "/v1/approvals")
    posting = {route.path for route in api.app.routes if "POST" in route.methods and not route.path.startswith(others)}
    assert posting == {
        "/v1/conversations",
        f"{conversation}/messages",
        f"{conversation}/fork",
        f"{conversation}/interrupt",  # needs a loop
        f"{conversation}/pause",  # needs an open turn
        f"{conversation}/resume",
        f"{conversation}/model",
        f"{conversation}/compact",
        f"{conversation}/races",  # needs machines
        "/v1/races/{race}/choose",
        f"{conversation}/replay",  # needs a turn that has ended
        f"{conversation}/budget",  # needs an agent that has one
        "/v1/agents",
    }


async def test_bytes_that_are_sent_again_get_the_same_answer_and_other_bytes_are_refused(api: Api) -> None:
    headers = {"idempotency-key": "k"}
    first = await api.http.post("/v1/blobs", content=b"one", headers=headers)
    again = await api.http.post("/v1/blobs", content=b"one", headers=headers)
    assert (first.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    problem = assert_problem(await api.http.post("/v1/blobs", content=b"two", headers=headers), 409)
    assert problem["code"] == "idempotency.key_reused"


async def test_the_same_key_and_body_get_the_same_answer_and_nothing_is_done_twice(api: Api) -> None:
    for path, body, _ in await posts(api):
        headers = {"idempotency-key": "the key"}
        first = await api.http.post(path, json=body, headers=headers)
        assert first.status_code in (201, 202)
        assert "idempotency-replayed" not in first.headers
        before = await effects(api)
        again = await api.http.post(path, json=body, headers=headers)
        assert again.headers["idempotency-replayed"] == "true"
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers.get("location") == first.headers.get("location")
        assert again.headers["content-type"] == first.headers["content-type"]
        assert await effects(api) == before


async def test_the_same_key_with_another_body_is_refused_and_does_nothing(api: Api) -> None:
    for path, body, other in await posts(api):
        headers = {"idempotency-key": "k"}
        assert (await api.http.post(path, json=body, headers=headers)).status_code < 300
        before = await effects(api)
        problem = assert_problem(await api.http.post(path, json=other, headers=headers), 409)
        assert problem["code"] == "idempotency.key_reused"
        assert await effects(api) == before


async def test_the_same_key_with_another_body_is_refused_as_such_even_if_that_body_is_wrong(api: Api) -> None:
    for path, body, _ in await posts(api):
        headers = {"idempotency-key": "k"}
        wrong = (b"", b"{", b'{"surprise": 1}') if path.endswith("/messages") else (b"{", b'{"surprise": 1}')
        for content in wrong:
            assert_problem(await api.http.post(path, content=content, headers=headers), 422)
        assert (await api.http.post(path, json=body, headers=headers)).status_code < 300
        for content in wrong:
            problem = assert_problem(await api.http.post(path, content=content, headers=headers), 409)
            assert problem["code"] == "idempotency.key_reused"
            assert_problem(await api.http.post(path, content=content, headers={"idempotency-key": "other"}), 422)
            assert_problem(await api.http.post(path, content=content), 422)


async def test_a_key_says_nothing_about_another_path_or_no_key(api: Api) -> None:
    one, two = await api.create(), await api.create()
    answers = [
        await api.http.post(f"/v1/conversations/{each}/messages", json={"text": "x"}, headers=headers)
        for each in (one, two)
        for headers in ({"idempotency-key": "k"}, {}, {})
    ]
    assert [answer.json()["seq"] for answer in answers] == [2, 3, 4, 2, 3, 4]


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\tkey", "k\x7f", "\xe9"])
async def test_a_malformed_key_is_refused_and_does_nothing(api: Api, key: str) -> None:
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as client:
        headers = {b"authorization": f"Bearer {TOKEN}".encode(), b"idempotency-key": key.encode("latin-1")}
        answer = await client.post("/v1/conversations", json={}, headers=headers)
    # The server below us refuses most control characters by itself.
    code = "request.unreadable" if key == "k\x7f" else "idempotency.key_malformed"
    assert assert_problem(answer, 400, 422)["code"] == code
    assert await effects(api) == (0, 0)


async def test_two_keys_on_one_request_are_refused(api: Api) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "b")]
    answer = await api.http.post("/v1/conversations", json={}, headers=headers)
    assert assert_problem(answer, 422)["code"] == "idempotency.key_malformed"


@pytest.mark.parametrize("key", ["x", "x" * 255, "with spaces !~", '"quoted"'])
async def test_printable_keys_of_every_length_work(api: Api, key: str) -> None:
    for _ in range(2):
        assert (await api.http.post("/v1/conversations", json={}, headers={"idempotency-key": key})).status_code == 201
    assert (await effects(api))[0] == 1


async def test_spaces_around_a_key_are_none_of_it(api: Api) -> None:
    body, seen = b"{}", set()
    for key in (" a b ", "a b", "\ta b", "  a b"):
        headers = {b"authorization": f"Bearer {TOKEN}".encode(), b"idempotency-key": key.encode()}
        lines = b"".join(b"%s:%s\r\n" % header for header in headers.items())
        host = f"{api.address[0]}:{api.address[1]}".encode()
        raw = b"POST /v1/conversations HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n%scontent-length: 2\r\n\r\n%s"
        async with await anyio.connect_tcp(*api.address) as connection:
            await connection.send(raw % (host, lines, body))
            answer = b"".join([chunk async for chunk in connection])
        assert answer.startswith(b"HTTP/1.1 201 "), (key, answer)
        seen.add(answer.partition(b"\r\n\r\n")[2])
    assert len(seen) == 1


async def test_a_body_that_was_refused_may_be_mended_under_the_same_key(api: Api) -> None:
    headers = {"idempotency-key": "k"}
    assert_problem(await api.http.post("/v1/conversations", json={"titel": "x"}, headers=headers), 422)
    assert (await api.http.post("/v1/conversations", json={"title": "x"}, headers=headers)).status_code == 201


async def test_a_refusal_by_what_is_there_is_remembered(api: Api) -> None:
    conversation = await api.create()
    await api.http.delete(f"/v1/conversations/{conversation}")
    path, headers = f"/v1/conversations/{conversation}/messages", {"idempotency-key": "k"}
    first = await api.http.post(path, json={"text": "x"}, headers=headers)
    again = await api.http.post(path, json={"text": "x"}, headers=headers)
    assert_problem(first, 409)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    unknown = f"/v1/conversations/{new_conversation_id()}/messages"
    answers = [await api.http.post(unknown, json={"text": "x"}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[1].headers["idempotency-replayed"] == "true"


async def test_of_many_at_once_one_acts_and_the_others_are_told_to_wait(api: Api) -> None:
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await api.http.post("/v1/conversations", json={}, headers={"idempotency-key": "k"}))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(post)
    made = [answer for answer in answers if answer.status_code == 201]
    waiting = [answer for answer in answers if answer.status_code == 409]
    assert len({answer.content for answer in made}) == 1
    assert len(made) + len(waiting) == 20
    assert {answer.json()["code"] for answer in waiting} <= {"idempotency.in_flight"}
    assert {answer.headers["retry-after"] for answer in waiting} <= {"1"}
    assert (await effects(api))[0] == 1


async def test_a_second_request_waits_while_the_first_is_under_way_however_long(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.governance.idempotency.RENEW_S", 0.05)
    go_on = anyio.Event()
    create = api.conversations.create

    async def create_slowly(*args: Any, **kwargs: Any) -> Any:
        await go_on.wait()
        return await create(*args, **kwargs)

    monkeypatch.setattr(api.conversations, "create", create_slowly)
    renewed = 0
    renew = keys_of(api).renew

    async def count(claims: Any) -> None:
        nonlocal renewed
        await renew(claims)
        renewed += 1

    monkeypatch.setattr(keys_of(api), "renew", count)
    headers = {"idempotency-key": "k"}
    async with anyio.create_task_group() as group:

        async def first() -> None:
            answer = await api.http.post("/v1/conversations", json={}, headers=headers)
            assert answer.status_code == 201

        group.start_soon(first)
        await eventually(lambda: renewed >= 2)
        second = await api.http.post("/v1/conversations", json={}, headers=headers)
        assert assert_problem(second, 409)["code"] == "idempotency.in_flight"
        assert second.headers["retry-after"] == "1"
        go_on.set()
    again = await api.http.post("/v1/conversations", json={}, headers=headers)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")


async def test_a_failure_of_ours_is_not_remembered_and_the_retry_does_nothing_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await api.create()
    send = api.conversations.send
    failures = 1

    async def send_then_fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        sent = await send(*args, **kwargs)
        if failures:
            failures -= 1
            raise UnavailableError("test.away", "Away just now.")
        return sent

    monkeypatch.setattr(api.conversations, "send", send_then_fail)
    path, headers = f"/v1/conversations/{conversation}/messages", {"idempotency-key": "k"}
    assert_problem(await api.http.post(path, json={"text": "once"}, headers=headers), 503)
    again = await api.http.post(path, json={"text": "once"}, headers=headers)
    assert (again.status_code, again.json()["seq"]) == (202, 2)
    assert "idempotency-replayed" not in again.headers
    assert [event.type for event in await api.conversations.read(conversation, 0, 10)] == [
        "conversation.created",
        "message.sent",
    ]


async def claim_as_a_process_that_died(api: Api, path: str, body: bytes) -> Claim:
    owner = await api.parts.principals.authenticate(TOKEN)
    scope = KeyScope(owner.id, "POST", path, "k")
    claim = await keys_of(api).claim(scope, hashlib.sha256(body).digest())
    assert isinstance(claim, Claim)
    return claim


@pytest.mark.parametrize("what", ["conversation", "message", "fork at the head"])
async def test_what_a_dead_process_had_done_is_found_and_not_done_again(api: Api, what: str) -> None:
    conversation = await api.create(title="parent")
    operation_of: dict[str, tuple[str, bytes]] = {
        "conversation": ("/v1/conversations", b'{"title": "x"}'),
        "message": (f"/v1/conversations/{conversation}/messages", b'{"text": "x"}'),
        "fork at the head": (f"/v1/conversations/{conversation}/fork", b"{}"),
    }
    path, body = operation_of[what]
    claim = await claim_as_a_process_that_died(api, path, body)
    # It got as far as doing it, and died before it could say so.
    match what:
        case "conversation":
            await api.conversations.create(claim.operation, actor=claim.scope.principal, title="x")
        case "message":
            await api.conversations.send(claim.operation, conversation, actor=claim.scope.principal, text="x")
        case _:
            await api.conversations.create(
                claim.operation, actor=claim.scope.principal, title="parent", parent=(conversation, 1)
            )
            await api.send(conversation, "the head moves on")
    before = await effects(api)
    in_flight = await api.http.post(path, content=body, headers={"idempotency-key": "k"})
    assert assert_problem(in_flight, 409)["code"] == "idempotency.in_flight"
    answer = in_flight

    async def is_taken_over() -> bool:
        nonlocal answer
        answer = await api.http.post(path, content=body, headers={"idempotency-key": "k"})
        return answer.status_code < 300

    await eventually(is_taken_over, within_s=10)  # the lease runs out by itself
    made = answer.json()
    assert (made.get("id") or made["message_id"]).partition("_")[2] == claim.operation.partition("_")[2]
    assert await effects(api) == before
    again = await api.http.post(path, content=body, headers={"idempotency-key": "k"})
    assert (again.content, again.headers["idempotency-replayed"]) == (answer.content, "true")


async def test_keys_are_remembered_over_a_restart(tmp_path: Path) -> None:
    headers = {"idempotency-key": new_operation_id()}
    async with open_api(tmp_path) as api:
        first = await api.http.post("/v1/conversations", json={}, headers=headers)
    async with open_api(tmp_path) as api:
        again = await api.http.post("/v1/conversations", json={}, headers=headers)
        assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
        assert (await api.conversations.get(ConversationId(first.json()["id"]))).head == 1
