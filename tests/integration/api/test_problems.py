"""Every error has one shape, on every route and for every kind; and none tells what is inside."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, Api, open_api, open_parts
from outlive.api import create_app
from outlive.api.errors import STATUS
from outlive.base import KINDS, OutliveError, new_conversation_id, new_machine_id

pytestmark = pytest.mark.anyio


def every_kind() -> dict[str, type[OutliveError]]:
    return {cls.kind: cls for cls in OutliveError.__subclasses__() if cls.kind in KINDS}


def requests_to(api: Api) -> list[tuple[str, str]]:
    named = {
        "{conversation}": new_conversation_id(),
        "{name}": "b3_" + "0" * 64,
        "{machine}": new_machine_id(),
        "{port}": "8000",
        "{path:anything}": "file",
    }
    found = []
    for route in api.app.routes:
        path = route.path
        for name, value in named.items():
            path = path.replace(name, value)
        found += [(method, path) for method in route.methods]
    return found


async def test_unknown_query_parameters_are_refused_on_every_route(api: Api) -> None:
    for method, path in requests_to(api):
        if path == "/openapi.json" or "/ports/" in path:  # what a preview is asked is the machine's business
            continue
        answer = await api.http.request(method, path, params={"surprise": "1"}, json={"text": "x"})
        problem = assert_problem(answer, 422)
        assert problem["errors"] == [
            {"at": "query.surprise", "message": "Extra inputs are not permitted", "type": "extra_forbidden"}
        ]


async def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(api: Api) -> None:
    taken = requests_to(api)
    for path in {path for _, path in taken}:
        allowed = {method for method, other in taken if other == path}
        if path == "/v1/principals/me":
            allowed |= {"DELETE"}  # as it stands it is also an address of `/principals/{principal}`
        method = next((method for method in ("PUT", "PATCH") if method not in allowed), None)
        if method is None:
            continue  # a preview takes what the server in the machine takes
        answer = await api.http.request(method, path)
        assert assert_problem(answer, 405)["code"] == "request.method_not_allowed"
        assert set(answer.headers["allow"].split(", ")) == allowed


async def test_a_path_that_is_none_is_not_found(api: Api) -> None:
    for path in (
        "/",
        "/v1",
        "/v1/",
        "/v1/conversations/",
        "/v2/conversations",
        "/docs",
        "/%00",
        "/v1/%ff",
        "//healthz",
    ):
        problem = assert_problem(await api.http.get(path), 404)
        assert problem["kind"] == "not_found"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_of_error_is_told_by_its_own_status(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    error = every_kind()[kind]("test.code", "What went wrong.", retry_after_s=2.2, seen=3)

    async def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(api.conversations, "get", fail)
    answer = await api.http.get(f"/v1/conversations/{new_conversation_id()}")
    problem = assert_problem(answer, STATUS[error.kind])
    assert (problem["kind"], problem["code"]) == (kind, "test.code")
    assert answer.headers["retry-after"] == "3"
    if kind == "broken":
        assert "What went wrong" not in answer.text
    else:
        assert (problem["detail"], problem["seen"]) == ("What went wrong.", 3)


async def test_a_bug_is_answered_without_telling_what_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_parts(tmp_path) as parts:

        async def fail(*args: object, **kwargs: object) -> None:
            raise ZeroDivisionError("secret of the house")

        monkeypatch.setattr(parts.conversations, "get", fail)
        transport = httpx.ASGITransport(create_app(parts), raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers={"authorization": f"Bearer {TOKEN}"}
        ) as client:
            answer = await client.get(f"/v1/conversations/{new_conversation_id()}")
    problem = assert_problem(answer, 500)
    assert (problem["kind"], problem["code"]) == ("broken", "api.failed")
    assert "secret" not in answer.text


async def test_what_is_not_ready_is_named(tmp_path: Path) -> None:
    there = {"database": True, "objects": False}

    async def readiness() -> Mapping[str, bool]:
        return there

    async with open_api(tmp_path, readiness=readiness) as api:
        answer = await api.http.get("/readyz")
        problem = assert_problem(answer, 503)
        assert (problem["code"], problem["parts"]) == ("api.not_ready", there)
        assert "objects" in problem["detail"]
        assert (await api.http.get("/healthz")).json() == {"status": "ok"}
        there["objects"] = True
        assert (await api.http.get("/readyz")).json() == {"ready": True, "parts": there}


async def test_metrics_count_requests_by_route_and_never_by_what_was_asked(api: Api) -> None:
    conversation = await api.create()
    await api.send(conversation)
    await api.http.get(f"/v1/conversations/{new_conversation_id()}")
    await api.http.request("TRACE", "/coffee")
    text = (await api.http.get("/metrics")).text
    for line in (
        'outlive_http_requests_total{method="POST",route="/v1/conversations",status="201"} 1.0',
        'outlive_http_requests_total{method="GET",route="/v1/conversations/{conversation}",status="404"} 1.0',
        'outlive_http_requests_total{method="other",route="none",status="404"} 1.0',
        "outlive_messages_appended_total 1.0",
        "outlive_followers 0.0",
    ):
        assert line in text
    assert conversation not in text


async def test_two_apps_count_apart(tmp_path: Path) -> None:
    async with open_parts(tmp_path) as parts:
        apps: list[Any] = [create_app(parts), create_app(replace(parts))]
        assert apps[0].state.outlive.metrics.registry is not apps[1].state.outlive.metrics.registry
