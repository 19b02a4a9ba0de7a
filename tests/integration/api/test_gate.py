"""Nobody gets past the gate: the matrix of token, Host and Origin, on every route."""

import re
from pathlib import Path

import httpx
import pytest

from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, Api, open_api
from outlive.base import new_conversation_id

pytestmark = pytest.mark.anyio

CONVERSATION = f"/v1/conversations/{new_conversation_id()}"
MESSAGE = "msg_" + "0" * 32
PROTECTED = [
    ("GET", "/v1/conversations"),
    ("POST", "/v1/conversations"),
    ("GET", CONVERSATION),
    ("DELETE", CONVERSATION),
    ("POST", f"{CONVERSATION}/messages"),
    ("GET", f"{CONVERSATION}/events"),
    ("GET", f"{CONVERSATION}/stream"),
    ("GET", f"{CONVERSATION}/transcript"),
    ("POST", f"{CONVERSATION}/fork"),
    ("POST", f"{CONVERSATION}/replay"),
    ("GET", f"{CONVERSATION}/comparison"),
    ("POST", f"{CONVERSATION}/interrupt"),
    ("POST", f"{CONVERSATION}/pause"),
    ("POST", f"{CONVERSATION}/resume"),
    ("GET", f"{CONVERSATION}/queue"),
    ("PUT", f"{CONVERSATION}/queue"),
    ("DELETE", f"{CONVERSATION}/queue/{{message}}"),
    ("POST", f"{CONVERSATION}/model"),
    ("POST", f"{CONVERSATION}/races"),
    ("GET", f"{CONVERSATION}/subagents"),
    ("GET", f"{CONVERSATION}/budget"),
    ("POST", f"{CONVERSATION}/budget"),
    ("POST", f"{CONVERSATION}/compact"),
    ("GET", f"{CONVERSATION}/pins"),
    ("PUT", f"{CONVERSATION}/pins/{MESSAGE}"),
    ("DELETE", f"{CONVERSATION}/pins/{MESSAGE}"),
    ("POST", "/v1/blobs"),
    ("GET", "/v1/blobs/b3_" + "0" * 64),
    ("GET", f"{CONVERSATION}/artifacts"),
    ("GET", "/v1/no/such/route"),
    ("GET", "/"),
    ("PATCH", "/v1/conversations"),
]
PUBLIC = ["/healthz", "/readyz", "/metrics", "/openapi.json"]


# Into the matrix, by `protected`.
TAKEN_AS_THEY_ARE = (
    "/v1/agents",
    "/v1/approvals",
    "/v1/machines",
    "/v1/environments",
    "/v1/nodes",
    "/v1/principals",
    "/v1/terminals",
    "/v1/artifacts",
    "/v1/races",
)


def test_the_matrix_covers_every_route(api_routes: set[tuple[str, str]]) -> None:
    named = {
        (method, path.replace(CONVERSATION, "/v1/conversations/{conversation}").replace(MESSAGE, "{message}"))
        for method, path in PROTECTED
    }
    named |= {("GET", path) for path in PUBLIC} | {("GET", "/v1/blobs/{name}")}
    assert {(method, path) for method, path in api_routes if not path.startswith(TAKEN_AS_THEY_ARE)} <= named


def protected(api_routes: set[tuple[str, str]]) -> list[tuple[str, str]]:
    others = [(method, path) for method, path in api_routes if path.startswith(TAKEN_AS_THEY_ARE)]
    assert len(others) > 30
    return [*PROTECTED, *((method, re.sub(r"{[^}]*}", "x", path)) for method, path in others)]


@pytest.fixture
async def api_routes(api: Api) -> set[tuple[str, str]]:
    return {(method, route.path) for route in api.app.routes for method in route.methods - {"HEAD"}}


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer x{TOKEN}",
        "Bearer " + "x" * 5000,
    ],
)
async def test_nothing_is_answered_without_the_token(
    api: Api, api_routes: set[tuple[str, str]], authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as nobody:
        for method, path in protected(api_routes):
            answer = await nobody.request(method, path, headers=headers)
            problem = assert_problem(answer, 401)
            assert problem["kind"] == "unauthenticated"
            assert answer.headers["www-authenticate"].startswith('Bearer realm="outlive"')
            assert TOKEN not in answer.text
    assert (await api.http.get("/v1/conversations")).json()["items"] == []


async def test_the_scheme_of_the_token_may_be_written_in_any_case(api: Api) -> None:
    answer = await api.http.get("/v1/conversations", headers={"authorization": f"bEaReR {TOKEN}"})
    assert answer.status_code == 200


async def test_two_authorization_headers_are_none(api: Api) -> None:
    headers = [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")]
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as client:
        assert_problem(await client.get("/v1/conversations", headers=headers), 401)


async def test_health_and_metrics_need_no_token_on_loopback_only(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api, httpx.AsyncClient(base_url=api.url, trust_env=False) as nobody:
        assert [(await nobody.get(path)).status_code for path in PUBLIC] == [200] * 4
    async with open_api(tmp_path, is_loopback=False) as api:
        async with httpx.AsyncClient(base_url=api.url, trust_env=False) as nobody:
            for path in PUBLIC:
                assert_problem(await nobody.get(path), 401)
        assert [(await api.http.get(path)).status_code for path in PUBLIC] == [200] * 4


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.2", "localhost.", "", "[::1]", "127.0.0.1:80:80", "a b"]
)
async def test_a_foreign_host_is_misdirected_everywhere(api: Api, host: str) -> None:
    for method, path in [*PROTECTED, *(("GET", path) for path in PUBLIC)]:
        answer = await api.http.request(method, path, headers={"host": host})
        assert assert_problem(answer, 421)["code"] == "request.misdirected"


async def test_our_own_host_is_taken_with_any_port_and_case(api: Api) -> None:
    for host in ("127.0.0.1", "127.0.0.1:9", "localhost:1234", "LOCALHOST"):
        assert (await api.http.get("/v1/conversations", headers={"host": host})).status_code == 200


async def test_a_host_that_is_allowed_with_its_port_is_refused_with_another(tmp_path: Path) -> None:
    async with open_api(tmp_path, allowed_hosts=frozenset({"outlive.test:8443"})) as api:
        assert (await api.http.get("/healthz", headers={"host": "outlive.test:8443"})).status_code == 200
        assert (await api.http.get("/healthz", headers={"host": "outlive.test"})).status_code == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "file://", ""]
)
async def test_pages_of_another_origin_are_refused_even_with_the_token(api: Api, origin: str) -> None:
    for method, path in [*PROTECTED, *(("GET", path) for path in PUBLIC)]:
        answer = await api.http.request(method, path, headers={"origin": origin})
        problem = assert_problem(answer, 403)
        assert (problem["kind"], problem["code"]) == ("denied", "request.foreign_origin")
        assert "access-control-allow-origin" not in answer.headers


async def test_our_own_pages_may_ask(api: Api) -> None:
    assert (await api.http.get("/v1/conversations", headers={"origin": api.url})).status_code == 200
