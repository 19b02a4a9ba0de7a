"""Agents over HTTP: applied, versioned, listed, refused with the name of what is wrong; and the blobs beside them."""

from typing import Any

import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api, fresh_key
from outlive.api.gate import BODY_LIMIT, READ_LIMIT

pytestmark = pytest.mark.anyio

REVIEWER: dict[str, Any] = {
    "name": "reviewer",
    "model": "demo:",
    "instructions": "Review the newest commit.",
    "tools": ["shell", "read_file"],
    "environment": "web",
    "budget": {"tokens": 1000},
}


async def test_applying_makes_versions_and_the_same_again_makes_none(api: Api) -> None:
    first = await api.http.post("/v1/agents", json=REVIEWER, headers=fresh_key())
    assert (first.status_code, first.headers["location"]) == (201, "/v1/agents/reviewer/versions/1")
    made = first.json()
    assert {**REVIEWER, "policy": None, "version": 1, "builtin": False}.items() <= made.items()
    again = await api.http.post("/v1/agents", json=dict(reversed(REVIEWER.items())), headers=fresh_key())
    assert again.json() == made
    changed = await api.http.post("/v1/agents", json={**REVIEWER, "tools": []}, headers=fresh_key())
    assert (changed.json()["version"], changed.json()["tools"]) == (2, [])
    assert (await api.http.get("/v1/agents/reviewer")).json() == changed.json()
    assert (await api.http.get("/v1/agents/reviewer/versions/1")).json() == made
    assert (await api.http.get("/v1/agents/reviewer/versions/2")).json() == changed.json()


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    for path in (
        "nobody",
        "coder/versions/2",
        "coder/versions/0",
        "coder/versions/x",
        "%00",
        f"coder/versions/{9**30}",
    ):
        assert assert_problem(await api.http.get(f"/v1/agents/{path}"), 404)["code"] == "agent.unknown"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "Reviewer"}, "name"),
        ({"name": "-a"}, "name"),
        ({"model": "anthropic"}, "one of anthropic, demo, openai"),
        ({"model": "other:x"}, "one of anthropic, demo, openai"),
        ({"tools": ["shell", "fly"]}, "there are: shell, read_file, write_file, edit_file"),
        ({"tools": ["shell", "shell"]}, "twice"),
        ({"budget": 3}, "budget"),
        ({"policy": []}, "policy"),
        ({"policy": {"aprove": ["shell"]}}, "policy.aprove"),
        ({"policy": {"approve": ["search"]}}, "tools of this agent"),
        ({"policy": {"approve_expires_s": 0}}, "approve_expires_s"),
        ({"instructions": ""}, "instructions"),
        ({"color": "red"}, "color"),
    ],
)
async def test_what_cannot_be_an_agent_is_refused_with_the_reason(api: Api, change: dict[str, Any], said: str) -> None:
    answer = await api.http.post("/v1/agents", json={**REVIEWER, **change})
    assert_problem(answer, 422)
    assert said in answer.text
    assert (await api.http.get("/v1/agents/reviewer")).status_code == 404


async def test_coder_is_built_in_until_somebody_applies_their_own(api: Api) -> None:
    (listed,) = (await api.http.get("/v1/agents")).json()["items"]
    assert (listed["name"], listed["version"], listed["builtin"], listed["model"]) == ("coder", 1, True, "demo:")
    assert {"shell", "edit_file", "publish"} <= set(listed["tools"])
    assert (await api.http.get("/v1/agents/coder/versions/1")).json() == listed
    own = (await api.http.post("/v1/agents", json={**REVIEWER, "name": "coder"})).json()
    assert (own["version"], own["builtin"]) == (2, False)
    assert (await api.http.get("/v1/agents")).json()["items"] == [own]
    assert (await api.http.get("/v1/agents/coder/versions/1")).json() == listed


async def test_agents_are_listed_in_pages(api: Api) -> None:
    for name in ("b", "a-1", "d"):
        await api.http.post("/v1/agents", json={**REVIEWER, "name": name})
    first = (await api.http.get("/v1/agents?limit=3")).json()
    assert ([each["name"] for each in first["items"]], first["next"]) == (["a-1", "b", "coder"], "coder")
    rest = (await api.http.get("/v1/agents?limit=3&cursor=coder")).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["d"], None)


async def test_a_conversation_is_not_made_with_an_agent_that_is_not_there(api: Api) -> None:
    answer = await api.http.post("/v1/conversations", json={"agent": "nobody"})
    assert assert_problem(answer, 404)["code"] == "agent.unknown"
    assert (await api.http.get("/v1/conversations")).json()["items"] == []
    await api.http.post("/v1/agents", json={**REVIEWER, "name": "nobody"})
    await api.create(agent="nobody")
    await api.create(agent="coder")


async def test_bytes_are_stored_once_under_a_name_made_of_them(api: Api) -> None:
    content = bytes(range(256)) * (BODY_LIMIT // 256 + 1)
    stored = await api.http.post("/v1/blobs", content=content, headers=fresh_key())
    assert (stored.status_code, stored.json()["size"]) == (201, len(content))
    name = stored.json()["blob"]
    assert stored.headers["location"] == f"/v1/blobs/{name}"
    assert (await api.http.get(f"/v1/blobs/{name}")).content == content
    assert (await api.http.post("/v1/blobs", content=content)).json() == stored.json()
    too_large = await api.http.post("/v1/blobs", content=b"x" * (READ_LIMIT + 1))
    assert assert_problem(too_large, 413)["limit"] == READ_LIMIT
