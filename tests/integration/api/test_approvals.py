"""Approvals over HTTP and the SDK: listed, decided once, by persons."""

from typing import Any

import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api, fresh_key
from outlive.base import ApprovalId, ConversationId, TurnId, derive, new_step_id
from outlive.client import AsyncClient
from outlive.conversation.approvals import ask_key, digest_of
from outlive.conversation.events import ApprovalRequested, NewEvent
from outlive.conversation.log import Append

pytestmark = pytest.mark.anyio

AT, LATER = "2030-01-02T03:04:05.000006Z", "2999-01-01T00:00:00.000000Z"


async def ask(api: Api, expires_at: str = LATER) -> dict[str, Any]:
    """An approval of a turn that waits for it, as it is shown."""
    conversation = await api.create()
    sent = await api.send(conversation)
    step = new_step_id()
    asked = ApprovalRequested(
        approval=derive("appr", step),
        question="May shell be run?",
        digest=digest_of("shell", {"command": "ls"}),
        expires_at=expires_at,
        step=step,
        effect=derive("eff", step),
        tool="shell",
        arguments={"command": "ls"},
    )
    new = (NewEvent(asked, AT),)
    turn = TurnId(sent["turn_id"])
    await api.conversations.append(Append(ConversationId(conversation), new, ask_key(asked.approval), "loop", turn))
    shown: dict[str, Any] = (await api.http.get(f"/v1/approvals/{asked.approval}")).json()
    return shown


async def decide(api: Api, id: str, decision: str = "approve", token: str | None = None, **more: Any) -> Any:
    headers = {**fresh_key(), **({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
    return await api.http.post(f"/v1/approvals/{id}", json={"decision": decision, **more}, headers=headers)


async def test_an_approval_is_shown_with_all_that_a_person_has_to_know(api: Api) -> None:
    shown = await ask(api)
    assert {
        "state": "pending",
        "question": "May shell be run?",
        "tool": "shell",
        "arguments": {"command": "ls"},
        "digest": digest_of("shell", {"command": "ls"}),
        "effect": shown["id"].replace("appr_", "eff_"),
        "expires_at": LATER,
        "decided_by": None,
    }.items() <= shown.items()
    assert (await api.http.get(f"/v1/conversations/{shown['conversation']}")).json()["state"] == "waiting"
    for nothing in ("appr_1", "x", derive("appr", new_step_id())):
        assert assert_problem(await api.http.get(f"/v1/approvals/{nothing}"), 404)["code"] == "approval.not_found"
        assert assert_problem(await decide(api, nothing), 404)["code"] == "approval.not_found"


async def test_a_decision_is_taken_once_and_said_with_who_made_it(api: Api) -> None:
    shown = await ask(api)
    key = fresh_key()
    denied = await decide(api, shown["id"], "deny", comment="Not now.", headers=key)
    assert denied.status_code == 200
    assert (denied.json()["state"], denied.json()["comment"]) == ("denied", "Not now.")
    again = await decide(api, shown["id"], "deny", comment="Not now.", headers=key)
    assert (again.status_code, again.json()) == (200, denied.json())
    for second in ("approve", "deny"):
        refused = await decide(api, shown["id"], second, comment="Not now.")
        assert assert_problem(refused, 409)["code"] == "approval.decided"
    events = await api.conversations.read(ConversationId(shown["conversation"]), 0, 100)
    [decided] = [event for event in events if event.type == "approval.decided"]
    assert decided.data == {"approval": shown["id"], "decision": "deny", "comment": "Not now."}
    me = denied.json()["decided_by"]
    assert decided.actor == me
    assert (await api.http.get(f"/v1/conversations/{shown['conversation']}")).json()["state"] == "running"


async def test_an_approval_that_has_expired_is_not_decided(api: Api) -> None:
    shown = await ask(api, expires_at="2020-01-01T00:00:00.000000Z")
    assert assert_problem(await decide(api, shown["id"]), 409)["code"] == "approval.expired"


@pytest.mark.parametrize(
    "body", [{}, {"decision": "expired"}, {"decision": "approve", "extra": 1}, {"decision": "deny", "comment": 3}]
)
async def test_what_is_no_decision_is_refused(api: Api, body: dict[str, Any]) -> None:
    shown = await ask(api)
    assert_problem(await api.http.post(f"/v1/approvals/{shown['id']}", json=body, headers=fresh_key()), 422)
    assert (await api.http.get(f"/v1/approvals/{shown['id']}")).json() == shown


async def test_persons_decide_and_no_agent_does_whatever_its_rights(api: Api) -> None:
    tokens = {}
    for name, kind, rights in (
        ("ada", "person", None),
        ("bot", "agent", ["approve", "admin"]),
        ("ci", "service", None),
        ("desk", "service", ["approve"]),
        ("eve", "person", ["observe"]),
    ):
        body = {"name": name, "kind": kind, **({"rights": rights} if rights else {})}
        made = await api.http.post("/v1/principals", json=body, headers=fresh_key())
        assert made.status_code == 201, made.text
        tokens[name] = made.json()["token"]
    shown = await ask(api)
    for name in ("bot", "ci", "eve"):
        refused = await decide(api, shown["id"], token=tokens[name])
        assert assert_problem(refused, 403)["code"] in ("approval.not_yours", "rights.observe_only")
    assert (await decide(api, shown["id"], token=tokens["desk"])).status_code == 200
    assert (await decide(api, (await ask(api))["id"], token=tokens["ada"])).status_code == 200


async def test_the_list_is_paged_and_filtered(api: Api) -> None:
    asked = [(await ask(api))["id"] for _ in range(3)]
    await decide(api, asked[1])
    newest = sorted(asked, reverse=True)

    async def listed(**params: Any) -> tuple[list[str], str | None]:
        answer = (await api.http.get("/v1/approvals", params=params)).json()
        return [each["id"] for each in answer["items"]], answer["next"]

    assert await listed() == (newest, None)
    first, cursor = await listed(limit=2)
    assert (first, cursor) == (newest[:2], newest[1])
    assert await listed(limit=2, cursor=cursor) == (newest[2:], None)
    pending = sorted((asked[0], asked[2]), reverse=True)
    assert await listed(state="pending") == (pending, None)
    assert await listed(state="pending", limit=1) == (pending[:1], pending[0])
    assert await listed(state="approved") == ([asked[1]], None)
    assert_problem(await api.http.get("/v1/approvals", params={"state": "lost"}), 422)
    assert_problem(await api.http.get("/v1/approvals", params={"cursor": "x"}), 422)


async def test_the_sdk_lists_and_decides(api: Api) -> None:
    asked = [(await ask(api))["id"] for _ in range(2)]
    async with AsyncClient(api.url, api.http.headers["authorization"].removeprefix("Bearer ")) as client:
        assert {each.id for each in await client.approvals.list(state="pending")} == set(asked)
        assert len(await client.approvals.list(limit=1)) == 1
        denied = await client.approvals.deny(asked[0], "no")
        assert (denied.state, denied.comment, denied.arguments) == ("denied", "no", {"command": "ls"})
        assert (await client.approvals.approve(asked[1])).state == "approved"
        assert await client.approvals.get(asked[0]) == denied
        assert (await api.parts.approvals.get(ApprovalId(asked[1]))).comment is None
