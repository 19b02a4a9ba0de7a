"""Compaction and pins over HTTP and the SDK. No loop is at work: what is asked for is in the log."""

from typing import Any

import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api, fresh_key
from outlive.client import AsyncClient
from outlive.loop.pinning import PINS_TOKENS

pytestmark = pytest.mark.anyio


async def types_of(api: Api, id: str) -> list[str]:
    return [event["type"] for event in (await api.http.get(f"/v1/conversations/{id}/events")).json()["items"]]


async def ask(api: Api, id: str, **body: Any) -> Any:
    return await api.http.post(f"/v1/conversations/{id}/compact", json=body, headers=fresh_key())


async def test_a_compaction_is_asked_for_once_whether_a_turn_is_open_or_not(api: Api) -> None:
    id = await api.create()
    first = await ask(api, id, keep=4)
    assert (first.status_code, first.json()) == (202, {"conversation": id, "turn": None})
    turn = (await api.send(id))["turn_id"]
    again = await ask(api, id)
    assert (again.status_code, again.json()["turn"]) == (202, turn)
    assert (await types_of(api, id)).count("compaction.requested") == 1
    [asked] = [
        event["data"]
        for event in (await api.http.get(f"/v1/conversations/{id}/events")).json()["items"]
        if event["type"] == "compaction.requested"
    ]
    assert asked == {"reason": "asked", "keep": 4, "step": None, "tokens": None}
    other = await api.create()
    turn = (await api.send(other))["turn_id"]
    assert (await ask(api, other)).json()["turn"] == turn


async def test_what_cannot_be_asked_for_is_refused_with_the_reason(api: Api) -> None:
    id = await api.create()
    for wrong in ({"keep": 0}, {"keep": 10**6}, {"keep": "all"}, {"surprise": 1}):
        assert_problem(await ask(api, id, **wrong), 422)
    assert_problem(await ask(api, "conv_" + "0" * 32), 404)
    assert await types_of(api, id) == ["conversation.created"]


async def test_messages_are_pinned_listed_shown_and_unpinned(api: Api) -> None:
    id = await api.create()
    first, second = [(await api.send(id, text=text))["message_id"] for text in ("never push", "hello")]
    path = f"/v1/conversations/{id}/pins"
    assert (await api.http.get(path)).json() == {"items": [], "next": None}
    for _ in range(2):
        pinned = await api.http.put(f"{path}/{first}")
        assert pinned.status_code == 200
    assert pinned.json()["items"] == [{"message": first, "seq": 2, "text": "never push", "tokens": 3}]
    await api.http.put(f"{path}/{second}")
    assert [each["message"] for each in (await api.http.get(path)).json()["items"]] == [first, second]
    items = (await api.http.get(f"/v1/conversations/{id}/transcript")).json()["items"]
    assert [item["pinned"] for item in items if item["kind"] == "message"] == [True, True]
    for _ in range(2):
        assert [each["message"] for each in (await api.http.delete(f"{path}/{first}")).json()["items"]] == [second]
    types = await types_of(api, id)
    assert (types.count("message.pinned"), types.count("message.unpinned")) == (2, 1)


async def test_pins_that_cannot_be_are_refused_and_say_what_to_do(api: Api) -> None:
    id = await api.create()
    path = f"/v1/conversations/{id}/pins"
    for none in ("msg_" + "0" * 32, "nonsense"):
        assert assert_problem(await api.http.put(f"{path}/{none}"), 404)["code"] == "message.not_found"
    long = (await api.send(id, text="x" * 4 * (PINS_TOKENS + 1)))["message_id"]
    problem = assert_problem(await api.http.put(f"{path}/{long}"), 429)
    assert problem["code"] == "pins.too_long"
    assert "unpin some" in problem["detail"]
    assert_problem(await api.http.put(f"/v1/conversations/conv_{'0' * 32}/pins/{long}"), 404)


async def test_the_sdk_asks_for_compactions_and_pins(api: Api) -> None:
    async with AsyncClient(api.url, api.http.headers["authorization"].removeprefix("Bearer ")) as client:
        conversation = await client.conversations.create()
        assert await conversation.compact(keep=2) is None
        sent = await conversation.send("never push")
        assert await conversation.compact() == sent.turn_id
        assert [pin["text"] for pin in await conversation.pin(sent.message_id)] == ["never push"]
        assert await conversation.pins() == await conversation.pin(sent.message_id)
        assert await conversation.unpin(sent.message_id) == []


async def test_an_agent_says_when_it_is_compacted_and_what_is_wrong_is_refused(api: Api) -> None:
    body = {"name": "a", "model": "openai:pretend", "instructions": "Go on.", "tools": []}
    made = await api.http.post("/v1/agents", json={**body, "compaction": {"at": 0.5}}, headers=fresh_key())
    assert made.status_code == 201
    assert made.json()["compaction"] == {"enabled": True, "at": 0.5, "keep": 12, "context_tokens": None}
    for wrong in ({"at": 2}, {"keep": 0}, {"context_tokens": 5}, {"wen": 1}):
        assert_problem(await api.http.post("/v1/agents", json={**body, "compaction": wrong}, headers=fresh_key()), 422)
