"""Budgets over HTTP and the SDK: shown, and raised by persons."""

from typing import Any

import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api, fresh_key
from outlive.base import ConversationId, TurnId, derive
from outlive.client import AsyncClient
from outlive.conversation.approvals import ask_key
from outlive.conversation.events import ApprovalRequested, BudgetQuestion, NewEvent, TurnStarted
from outlive.conversation.log import Append

pytestmark = pytest.mark.anyio

AT, LATER = "2030-01-02T03:04:05.000006Z", "2999-01-01T00:00:00.000000Z"
BUDGET = {"turn": {"tokens": 1000, "steps": 5}, "conversation": {"tokens": 9000, "usd": 2.5}}


async def agent(api: Api, **more: Any) -> Any:
    body = {"name": "thrifty", "model": "anthropic:claude-sonnet-5-5", "instructions": "Save.", "tools": [], **more}
    return await api.http.post("/v1/agents", json=body, headers=fresh_key())


async def begin(api: Api) -> tuple[str, str]:
    """A conversation whose turn has asked for more tokens, and the approval."""
    assert (await agent(api, budget=BUDGET)).status_code == 201
    made = await api.http.post("/v1/conversations", json={"agent": "thrifty"}, headers=fresh_key())
    id = ConversationId(made.json()["id"])
    turn = TurnId((await api.send(id))["turn_id"])
    started = NewEvent(TurnStarted(agent="thrifty", version=1, model="anthropic:claude-sonnet-5-5"), AT)
    await api.conversations.append(Append(id, (started,), f"begin/{turn}", "loop", turn))
    approval = derive("appr", turn, 1)
    question = BudgetQuestion(scope="turn", limit="tokens", amount=1000)
    asked = ApprovalRequested(approval=approval, question="More?", expires_at=LATER, budget=question)
    await api.conversations.append(Append(id, (NewEvent(asked, AT),), ask_key(approval), "loop", turn))
    return id, approval


async def give(api: Api, id: str, token: str | None = None, **body: Any) -> Any:
    headers = {**fresh_key(), **({"authorization": f"Bearer {token}"} if token else {})}
    return await api.http.post(f"/v1/conversations/{id}/budget", json=body, headers=headers)


async def state_of(api: Api, approval: str) -> str:
    return str((await api.http.get(f"/v1/approvals/{approval}")).json()["state"])


async def test_a_conversation_shows_its_limits_what_it_used_and_what_is_asked(api: Api) -> None:
    id, approval = await begin(api)
    shown = (await api.http.get(f"/v1/conversations/{id}")).json()["budget"]
    assert shown["limits"] == BUDGET
    assert shown["used"]["turn"]["tokens"] == 0
    assert shown["question"] == {"approval": approval, "scope": "turn", "limit": "tokens", "amount": 1000.0}
    assert (await api.http.get(f"/v1/conversations/{id}/budget")).json()["limits"] == BUDGET
    asked = (await api.http.get(f"/v1/approvals/{approval}")).json()
    assert asked["budget"] == {"scope": "turn", "limit": "tokens", "amount": 1000.0}
    without = await api.create()
    assert "budget" not in (await api.http.get(f"/v1/conversations/{without}")).json()
    assert assert_problem(await api.http.get(f"/v1/conversations/{without}/budget"), 409)["code"] == "budget.none"
    assert assert_problem(await give(api, without, usd=1.0), 409)["code"] == "budget.none"


async def test_a_raise_answers_the_question_only_if_it_lifts_the_limit_that_was_hit(api: Api) -> None:
    id, approval = await begin(api)
    for other in ({"usd": 5.0}, {"tokens": 10, "scope": "conversation"}, {"steps": 1, "scope": "turn"}):
        assert (await give(api, id, **other)).status_code == 200
        assert await state_of(api, approval) == "pending", other
    key = fresh_key()
    answers = [
        await api.http.post(f"/v1/conversations/{id}/budget", json={"tokens": 500}, headers=key) for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["limits"] == {
        "turn": {"tokens": 1500, "steps": 6},
        "conversation": {"tokens": 9510, "usd": 7.5},
    }
    assert answers[0].json()["question"] is None
    assert await state_of(api, approval) == "approved"
    listed = (await api.http.get("/v1/approvals")).json()["items"]
    assert [each["id"] for each in listed] == [approval], "it is there once, though its batch has two events"
    assert (await api.http.get(f"/v1/conversations/{id}")).json()["state"] == "running"


async def test_who_approves_raises_by_what_was_asked_or_by_the_amount(api: Api) -> None:
    for amount, tokens in ((None, 2000), (10, 1010)):
        id, approval = await begin(api)
        body = {"decision": "approve", **({"amount": amount} if amount else {})}
        assert (await api.http.post(f"/v1/approvals/{approval}", json=body, headers=fresh_key())).status_code == 200
        shown = (await api.http.get(f"/v1/conversations/{id}/budget")).json()
        assert shown["limits"]["turn"]["tokens"] == tokens
    id, approval = await begin(api)
    body = {"decision": "deny", "amount": 5}
    refused = await api.http.post(f"/v1/approvals/{approval}", json=body, headers=fresh_key())
    assert assert_problem(refused, 422)["code"] == "approval.amount"
    assert await state_of(api, approval) == "pending"


@pytest.mark.parametrize(
    "body", [{}, {"usd": 0}, {"usd": -1}, {"tokens": 1.5}, {"usd": 1, "scope": "all"}, {"dollars": 1}]
)
async def test_what_is_no_raise_is_refused(api: Api, body: dict[str, Any]) -> None:
    id, _ = await begin(api)
    assert_problem(await give(api, id, **body), 422)


async def test_what_raises_no_limit_is_refused_with_the_limits_that_there_are(api: Api) -> None:
    id, _ = await begin(api)
    idle = (await api.http.post("/v1/conversations", json={"agent": "thrifty"}, headers=fresh_key())).json()["id"]
    for conversation, body, said in (
        (id, {"seconds": 5.0}, "of a turn (one is open): tokens, steps; of the conversation: tokens, usd."),
        (id, {"usd": 5.0, "scope": "turn"}, "of a turn (one is open): tokens, steps; "),
        (id, {"steps": 5, "scope": "conversation"}, "of the conversation: tokens, usd."),
        (idle, {"steps": 5}, "of a turn (none is open): tokens, steps; "),
    ):
        head = (await api.http.get(f"/v1/conversations/{conversation}")).json()["head"]
        problem = assert_problem(await give(api, conversation, **body), 409)
        assert (problem["code"], said in problem["detail"]) == ("budget.no_limit", True), problem["detail"]
        assert (await api.http.get(f"/v1/conversations/{conversation}")).json()["head"] == head, "nothing is written"
    mixed = (await give(api, id, seconds=5.0, steps=1)).json()["limits"]
    assert mixed["turn"] == {"tokens": 1000, "steps": 6}, "it is added to the limits that there are"


async def test_no_agent_raises_a_budget_and_none_is_raised_for_a_turn_that_is_not_there(api: Api) -> None:
    id, _ = await begin(api)
    body = {"name": "bot", "kind": "agent", "rights": ["approve", "admin"]}
    token = (await api.http.post("/v1/principals", json=body, headers=fresh_key())).json()["token"]
    assert assert_problem(await give(api, id, token, usd=1.0), 403)["code"] == "approval.not_yours"
    idle = (await api.http.post("/v1/conversations", json={"agent": "thrifty"}, headers=fresh_key())).json()["id"]
    assert assert_problem(await give(api, idle, usd=1.0, scope="turn"), 409)["code"] == "turn.none_open"
    assert (await give(api, idle, usd=1.0)).json()["limits"]["conversation"] == {"tokens": 9000, "usd": 3.5}


async def test_a_budget_that_cannot_be_kept_is_refused_when_the_agent_is_applied(api: Api) -> None:
    unknown = await agent(api, model="openai:nobody-knows", budget={"turn": {"usd": 1}})
    assert assert_problem(unknown, 422)["code"] == "budget.unknown_price"
    assert assert_problem(await agent(api, budget={"turn": {"token": 1}}), 422)["code"] == "agent.budget"


async def test_the_sdk_shows_and_raises(api: Api) -> None:
    id, approval = await begin(api)
    async with AsyncClient(api.url, api.http.headers["authorization"].removeprefix("Bearer ")) as client:
        conversation = await client.conversations.get(id)
        assert (await conversation.budget())["limits"] == BUDGET
        assert (await client.approvals.approve(approval, amount=7)).state == "approved"
        raised = await conversation.raise_budget(usd=1.0, scope="conversation")
        assert raised["limits"] == {
            "turn": {"tokens": 1007, "steps": 5},
            "conversation": {"tokens": 9000, "usd": 3.5},
        }
