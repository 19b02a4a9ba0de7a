"""Changing the model over HTTP, the SDK and the command; fallbacks of an agent."""

from typing import Any

import anyio.to_thread
import pytest

from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, Api, fresh_key
from outlive.base import ConversationId
from outlive.client import AsyncClient, Client

pytestmark = pytest.mark.anyio

AGENT = {"name": "steady", "model": "demo:", "instructions": "Go on.", "tools": []}


async def change(api: Api, id: str, **body: Any) -> Any:
    return await api.http.post(f"/v1/conversations/{id}/model", json=body, headers=fresh_key())


async def changes(api: Api, id: str) -> list[dict[str, Any]]:
    events = (await api.http.get(f"/v1/conversations/{id}/events?limit=1000")).json()["items"]
    return [event["data"] for event in events if event["type"] == "model.changed"]


async def test_a_model_is_changed_for_the_conversation_or_for_the_open_turn(api: Api) -> None:
    id = await api.create()
    assert assert_problem(await change(api, id, model="openai:big"), 409)["code"] == "turn.none_open"
    shown = (await change(api, id, model="openai:big", scope="conversation")).json()
    assert (shown["id"], shown["model"]) == (id, "openai:big")
    assert (await change(api, id, model="openai:big", scope="conversation")).json() == shown, "it is so already"
    turn = (await api.send(id))["turn_id"]
    assert (await change(api, id, model="demo:")).json()["model"] == "openai:big", "the turn alone"
    assert await changes(api, id) == [
        {"model": "openai:big", "before": None, "scope": "conversation"},
        {"model": "demo:", "before": None, "scope": "turn"},
    ]
    events = (await api.http.get(f"/v1/conversations/{id}/events")).json()["items"]
    assert [event["turn"] for event in events if event["type"] == "model.changed"] == [None, turn]
    fork = await api.http.post(f"/v1/conversations/{id}/fork", json={}, headers=fresh_key())
    assert fork.json()["model"] == "openai:big"


async def test_the_same_key_changes_it_once(api: Api) -> None:
    id, key = await api.create(), fresh_key()
    body = {"model": "openai:big", "scope": "conversation"}
    answers = [await api.http.post(f"/v1/conversations/{id}/model", json=body, headers=key) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    other = await api.http.post(f"/v1/conversations/{id}/model", json={**body, "model": "demo:"}, headers=key)
    assert assert_problem(other, 409)["code"] == "idempotency.key_reused"
    assert len(await changes(api, id)) == 1


@pytest.mark.parametrize(
    "body", [{}, {"model": ""}, {"model": "demo:", "scope": "step"}, {"model": "demo:\x00"}, {"model": "demo:", "x": 1}]
)
async def test_what_is_no_change_is_refused(api: Api, body: dict[str, Any]) -> None:
    id = await api.create()
    assert_problem(await change(api, id, **body), 422)
    assert await changes(api, id) == []


async def test_a_model_that_nothing_could_ask_is_refused_with_what_there_is(api: Api) -> None:
    id = await api.create()
    for model, code in (("gpt", "model.unknown_provider"), ("mistral:large", "model.unknown_provider")):
        problem = assert_problem(await change(api, id, model=model, scope="conversation"), 422)
        assert problem["code"] == code
        assert "anthropic, demo, openai" in problem["detail"]
        assert "openai:gpt-5.5" in problem["detail"]
    unnamed = assert_problem(await change(api, id, model="openai:", scope="conversation"), 422)
    assert "openai:gpt-5.5" in unnamed["detail"]
    assert "anthropic" not in unnamed["detail"]


@pytest.mark.parametrize("model", ["gpt", "mistral:large", "openai:"])
async def test_a_model_that_nothing_could_ask_is_refused_wherever_it_is_named_and_nothing_is_recorded(
    api: Api, model: str
) -> None:
    id = await api.create()
    for path, body in (
        ("", {}),
        (f"/{id}/messages", {"text": "hello"}),
        (f"/{id}/fork", {}),
        (f"/{id}/replay", {}),
    ):
        answer = await api.http.post(f"/v1/conversations{path}", json={**body, "model": model}, headers=fresh_key())
        problem = assert_problem(answer, 422)
        assert problem["code"].startswith("model."), path
        assert "openai" in problem["detail"]
    assert [shown["id"] for shown in (await api.http.get("/v1/conversations")).json()["items"]] == [id]
    assert (await api.http.get(f"/v1/conversations/{id}")).json()["head"] == 1


async def test_a_model_is_kept_as_it_is_priced(api: Api) -> None:
    id = await api.create(model="openai: gpt-5.5 ")
    assert (await api.http.get(f"/v1/conversations/{id}")).json()["model"] == "openai:gpt-5.5"


async def test_fallbacks_of_an_agent_are_kept_shown_and_checked(api: Api) -> None:
    async def apply(**more: Any) -> Any:
        return await api.http.post("/v1/agents", json=AGENT | more, headers=fresh_key())

    assert (await apply()).json()["fallbacks"] == []
    made = (await apply(fallbacks=["openai:big", "anthropic:small"])).json()
    assert (made["version"], made["fallbacks"]) == (2, ["openai:big", "anthropic:small"])
    assert (await api.http.get("/v1/agents/steady")).json() == made
    for wrong, code in (
        (["gpt"], "model.unknown_provider"),
        (["demo:"], "agent.fallbacks"),
        (["openai:a", "openai:a"], None),
        ([f"openai:{n}" for n in range(6)], None),
        ([""], None),
    ):
        problem = assert_problem(await apply(fallbacks=wrong), 422)
        assert code is None or problem["code"] == code


async def test_both_clients_change_the_model(api: Api) -> None:
    id = await api.create()
    async with AsyncClient(api.url, TOKEN) as client:
        conversation = await client.conversations.get(id)
        assert (await conversation.change_model("openai:big", scope="conversation")).facts.model == "openai:big"
        await client.agents.apply({**AGENT, "fallbacks": ["openai:big"]})
        assert (await client.agents.get("steady")).fallbacks == ("openai:big",)

    def use() -> str | None:
        with Client(api.url, TOKEN) as client:
            return client.conversations.get(id).change_model("demo:", scope="conversation").facts.model

    assert await anyio.to_thread.run_sync(use) == "demo:"
    assert (await api.conversations.get(ConversationId(id))).model == "demo:"
