"""Messages that wait, over HTTP and the SDK: listed, put in another order, withdrawn; and hostile requests of that."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api, fresh_key
from outlive.base import ConflictError, ConversationId, NotFoundError, StepId, TurnId, derive, new_message_id
from outlive.client import AsyncClient
from outlive.conversation.events import NewEvent, TurnStarted
from outlive.conversation.log import Append
from outlive.conversation.writer import start_step

pytestmark = pytest.mark.anyio

AT = "2030-01-02T03:04:05.000006Z"


async def begin(api: Api) -> tuple[ConversationId, TurnId]:
    """A conversation whose turn is asking for its first answer."""
    id = await api.create()
    turn = TurnId((await api.send(id, "Go"))["turn_id"])
    started = NewEvent(TurnStarted(agent="coder", version=1, model="demo:"), AT)
    await api.conversations.append(Append(id, (started,), f"begin/{turn}", "loop", turn))
    await take(api, id, turn, 1)
    return id, turn


async def take(api: Api, id: ConversationId, turn: TurnId, n: int) -> None:
    """An answer is asked for: whatever waits is taken."""
    step = StepId(derive("step", turn, n))
    await start_step(
        api.conversations, id, turn=turn, step=step, attempt=1, kind="model", name="demo:", actor="agent:coder"
    )


async def queue_of(api: Api, id: str, **query: Any) -> list[str]:
    answer = await api.http.get(f"/v1/conversations/{id}/queue", params=query)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def types_of(api: Api, id: str) -> list[str]:
    events = (await api.http.get(f"/v1/conversations/{id}/events", params={"limit": 1000})).json()["items"]
    return [each["type"] for each in events]


async def test_what_waits_is_listed_in_order_with_who_said_it(api: Api) -> None:
    id, _ = await begin(api)
    assert await queue_of(api, id) == []
    sent = [await api.send(id, text) for text in ("one", "x" * 600)]
    path = f"/v1/conversations/{id}/messages"
    now = await api.http.post(path, json={"text": "now", "when": "now"}, headers=fresh_key())
    page = (await api.http.get(f"/v1/conversations/{id}/queue")).json()
    assert page["next"] is None
    first, second, third = page["items"]
    assert tuple(first) == ("id", "seq", "text", "is_whole", "attachments", "actor", "at", "when")
    assert (first["id"], first["seq"], first["text"]) == (sent[0]["message_id"], sent[0]["seq"], "one")
    assert (first["is_whole"], first["when"], first["attachments"]) == (True, "next", 0)
    assert (len(second["text"]), second["is_whole"]) == (500, False)
    assert (third["id"], third["when"]) == (now.json()["message_id"], "now")
    assert now.json()["turn_id"] == sent[0]["turn_id"]
    events = (await api.http.get(f"/v1/conversations/{id}/events")).json()["items"]
    assert [each["type"] for each in events[-2:]] == ["message.sent", "message.hurried"]
    assert events[-1]["turn"] == events[-2]["turn"] == sent[0]["turn_id"]
    one = (await api.http.get(f"/v1/conversations/{id}/queue", params={"limit": 2})).json()
    assert one["next"] == second["id"]
    assert await queue_of(api, id, limit=2, cursor=one["next"]) == [third["id"]]


async def test_an_order_is_taken_whole_or_refused_with_the_present_one(api: Api) -> None:
    id, turn = await begin(api)
    one, two = [(await api.send(id, text))["message_id"] for text in ("one", "two")]
    path = f"/v1/conversations/{id}/queue"
    for wrong in ([one], [one, two, new_message_id()], []):
        problem = assert_problem(await api.http.put(path, json={"order": wrong}), 409)
        assert (problem["code"], problem["order"]) == ("queue.changed", [one, two])
    put = await api.http.put(path, json={"order": [two, one]})
    assert [each["id"] for each in put.json()["items"]] == [two, one] == await queue_of(api, id)
    assert (await api.http.put(path, json={"order": [two, one]})).status_code == 200
    assert (await types_of(api, id)).count("queue.ordered") == 1, "what is so already changes nothing"
    await take(api, id, turn, 2)
    assert assert_problem(await api.http.put(path, json={"order": [one, two]}), 409)["order"] == []


async def test_a_message_is_withdrawn_until_it_is_taken(api: Api) -> None:
    id, turn = await begin(api)
    one, two = [(await api.send(id, text))["message_id"] for text in ("one", "two")]
    path = f"/v1/conversations/{id}/queue"
    for _ in range(2):
        gone = await api.http.delete(f"{path}/{one}")
        assert (gone.status_code, [each["id"] for each in gone.json()["items"]]) == (200, [two])
    assert (await types_of(api, id)).count("message.withdrawn") == 1
    await take(api, id, turn, 2)
    assert assert_problem(await api.http.delete(f"{path}/{two}"), 409)["code"] == "message.taken"
    assert assert_problem(await api.http.delete(f"{path}/{new_message_id()}"), 404)["code"] == "message.not_found"
    items = (await api.http.get(f"/v1/conversations/{id}/transcript")).json()["items"]
    assert [each["withdrawn"] for each in items if each["kind"] == "message"] == [False, True, False]


async def test_of_a_withdrawal_and_a_taking_at_once_exactly_one_wins_and_both_are_told_truly(api: Api) -> None:
    id, turn = await begin(api)
    won = set()
    for n in range(2, 22):
        message = (await api.send(id, f"message {n}"))["message_id"]
        answers: list[Any] = []

        async def withdraw(message: str = message, answers: list[Any] = answers) -> None:
            answers.append(await api.http.delete(f"/v1/conversations/{id}/queue/{message}"))

        async with anyio.create_task_group() as group:
            group.start_soon(withdraw)
            for _ in range(n):  # now and then the one comes first, now and then the other
                await anyio.lowlevel.checkpoint()
            group.start_soon(take, api, id, turn, n)
        events = (await api.http.get(f"/v1/conversations/{id}/events", params={"limit": 1000})).json()["items"]
        last = [each["type"] for each in events[-2:]]
        if answers[0].status_code == 200:
            assert last == ["message.withdrawn", "step.started"]
        else:
            assert assert_problem(answers[0], 409)["code"] == "message.taken"
            assert last == ["message.sent", "step.started"]
        won.add(answers[0].status_code)
    assert won <= {200, 409}


async def test_the_same_key_again_gets_the_same_answer_and_writes_nothing(api: Api) -> None:
    id, _ = await begin(api)
    one, two = [(await api.send(id, text))["message_id"] for text in ("one", "two")]
    path = f"/v1/conversations/{id}/queue"
    for method, at, body in (("PUT", path, {"order": [two, one]}), ("DELETE", f"{path}/{one}", None)):
        key = fresh_key()
        first = await api.http.request(method, at, json=body, headers=key)
        before = await types_of(api, id)
        again = await api.http.request(method, at, json=body, headers=key)
        assert first.status_code == 200, first.text
        assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
        assert await types_of(api, id) == before


async def test_what_a_turn_is_about_and_what_hurried_are_not_withdrawn(api: Api) -> None:
    id = await api.create()
    opening = (await api.send(id, "Go"))["message_id"]
    path = f"/v1/conversations/{id}/queue"
    assert assert_problem(await api.http.delete(f"{path}/{opening}"), 409)["code"] == "message.opens_turn"
    hurried = await api.http.post(f"/v1/conversations/{id}/messages", json={"text": "x", "when": "now"})
    refused = await api.http.delete(f"{path}/{hurried.json()['message_id']}")
    assert assert_problem(refused, 409)["code"] == "message.hurried"


ORDERS: dict[str, bytes] = {
    "nothing": b"",
    "not json": b"order",
    "a list": b"[]",
    "no order": b"{}",
    "an order that is none": b'{"order": "msg_1"}',
    "an order of numbers": b'{"order": [1]}',
    "an order of null": b'{"order": [null]}',
    "no ids": b'{"order": ["../x", "msg_1"]}',
    "ids of others": b'{"order": ["conv_' + b"0" * 32 + b'"]}',
    "an id with NUL": b'{"order": ["msg_' + b"0" * 31 + b'\\u0000"]}',
    "digits of another script": '{{"order": ["msg_{}"]}}'.format("٣" * 32).encode(),
    "half a surrogate": b'{"order": ["\\ud800"]}',
    "twice": json.dumps({"order": ["msg_" + "0" * 32] * 2}).encode(),
    "too many": json.dumps({"order": [f"msg_{number:032x}" for number in range(1001)]}).encode(),
    "more": b'{"order": [], "surprise": 1}',
    "deep": b'{"order": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
}
WHENS = (b'"later"', b'""', b"null", b"1", b'["now"]', b'"NOW"', b'"now\\u0000"')


async def test_a_hostile_order_or_moment_is_a_problem_and_leaves_nothing(api: Api) -> None:
    id, _ = await begin(api)
    await api.send(id, "one")
    before = await types_of(api, id)
    headers = {"content-type": "application/json"}
    for name, body in ORDERS.items():
        answer = await api.http.put(f"/v1/conversations/{id}/queue", content=body, headers=headers)
        assert assert_problem(answer, 422)["kind"] == "invalid", name
        assert len(answer.content) < 10_000, name
    for when in WHENS:
        body = b'{"text": "x", "when": ' + when + b"}"
        answer = await api.http.post(f"/v1/conversations/{id}/messages", content=body, headers=headers)
        assert_problem(answer, 422)
    for query in ("limit=0", "limit=1001", "cursor=x", "cursor=conv_" + "0" * 32, "after=1"):
        assert_problem(await api.http.get(f"/v1/conversations/{id}/queue?{query}"), 422)
    assert await types_of(api, id) == before


async def test_a_wrong_id_is_the_id_of_no_message(api: Api) -> None:
    id, _ = await begin(api)
    nobody = f"/v1/conversations/conv_{'0' * 32}/queue"
    assert_problem(await api.http.get(nobody), 404)
    assert_problem(await api.http.put(nobody, json={"order": []}), 404)
    assert_problem(await api.http.delete(f"{nobody}/{new_message_id()}"), 404)
    zeros = "0" * 32
    for wrong in ("x", "msg_", f"MSG_{zeros}", f"conv_{zeros}", "%00", "..%2fx", f"msg_{zeros}%0a", "x" * 5000):
        assert_problem(await api.http.delete(f"/v1/conversations/{id}/queue/{wrong}"), 404)


async def test_the_sdk_lists_orders_and_withdraws(api: Api) -> None:
    id, turn = await begin(api)
    async with AsyncClient(api.url, "secret-token-of-the-owner") as client:
        conversation = await client.conversations.get(id)
        one, two = [await conversation.send(text) for text in ("one", "two")]
        now = await conversation.send("three", when="now")
        assert [each.text for each in await conversation.queue()] == ["one", "two", "three"]
        order = [two.message_id, now.message_id, one.message_id]
        assert [each.id for each in await conversation.order_queue(order)] == order
        assert [each.when for each in await conversation.withdraw(one.message_id)] == ["next", "now"]
        with pytest.raises(ConflictError) as changed:
            await conversation.order_queue([one.message_id])
        assert changed.value.facts["order"] == tuple(order[:2])
        await take(api, id, turn, 2)
        with pytest.raises(ConflictError):
            await conversation.withdraw(two.message_id)
        with pytest.raises(NotFoundError):
            await conversation.withdraw("../x")
