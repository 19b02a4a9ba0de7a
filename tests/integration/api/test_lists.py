"""Every list of the API is paged, in one way."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from outlive.base import NodeId, new_node_id
from outlive.machine.status import Node
from outlive.testing.machine_records import AT

pytestmark = pytest.mark.anyio

# One document, from the first message to the last: it has a `position` to follow on from.
NO_LIST = {"/v1/conversations/{conversation}/transcript"}


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def _pages(api: MachineApi, path: str, limit: int = 2) -> list[list[Any]]:
    """All of it, page by page, as a client that knows nothing but `next`."""
    pages: list[list[Any]] = []
    joint, cursor = "&" if "?" in path else "?", ""
    while True:
        answer = await api.http.get(f"{path}{joint}limit={limit}{cursor}")
        assert answer.status_code == 200, answer.text
        page = answer.json()
        pages.append(page["items"])
        if page["next"] is None:
            return pages
        cursor = f"&cursor={page['next']}"


async def _assert_paged(api: MachineApi, path: str, wanted: list[Any], name: str | None) -> None:
    pages = await _pages(api, path)
    assert [item if name is None else item[name] for page in pages for item in page] == wanted
    assert [len(page) for page in pages[:-1]] == [2] * (len(pages) - 1)
    assert len(pages) == (len(wanted) + 1) // 2 > 1
    whole = (await api.http.get(path)).json()
    assert (len(whole["items"]), whole["next"]) == (len(wanted), None)
    for wrong in ("limit=0", "limit=1001", "cursor=%00"):
        assert_problem(await api.http.get(f"{path}{'&' if '?' in path else '?'}{wrong}"), 422)


def _properties(document: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return _properties(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return set(schema.get("properties", ()))


async def test_every_list_takes_a_limit_and_a_cursor_and_says_what_is_next(api: MachineApi) -> None:
    document = (await api.http.get("/openapi.json")).json()
    lists = 0
    for path, operations in document["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        answered = _properties(document, content.get("application/json", {}).get("schema", {}))
        if "items" not in answered or path in NO_LIST:
            continue
        lists += 1
        taken = {each["name"] for each in operations["get"]["parameters"] if each["in"] == "query"}
        assert "next" in answered, f"GET {path} does not say what is next"
        assert taken >= {"limit", "cursor"}, f"GET {path} takes no {' and no '.join({'limit', 'cursor'} - taken)}"
    assert lists >= 18


async def test_environments_are_listed_page_by_page(api: MachineApi) -> None:
    for name in ("web", "app", "zoo"):
        await api.http.post("/v1/environments", json={"name": name, "install": ["true"]})
    named = ["app", "debian", "default", "host", "web", "zoo"]
    await _assert_paged(api, "/v1/environments", named, "name")


async def test_checkpoints_and_nodes_are_listed_page_by_page(api: MachineApi) -> None:
    machine = await api.create()
    made = [(await api.do(machine, "checkpoint"))["id"] for _ in range(4)]
    kept = [each["id"] for each in (await api.http.get(f"/v1/machines/{machine}/checkpoints")).json()["items"]]
    assert set(kept) <= set(made)
    await _assert_paged(api, f"/v1/machines/{machine}/checkpoints", sorted(kept, reverse=True), "id")
    assert_problem(await api.http.get(f"/v1/machines/{machine}/checkpoints?cursor={machine}"), 422)
    nodes: list[NodeId] = [api.node.machines.node, *(new_node_id() for _ in range(4))]
    for node in nodes[1:]:
        record = Node(id=node, address="unix:/nowhere", lease_until=AT, capacity={}, started_at=AT)
        await api.node.records.nodes.renew(record, lease_s=60)
    await _assert_paged(api, "/v1/nodes", sorted(nodes), "id")
    assert_problem(await api.http.get(f"/v1/nodes?cursor={machine}"), 422)


async def test_what_runs_and_listens_in_a_machine_is_listed_page_by_page(api: MachineApi) -> None:
    machine = await api.create()
    for _ in range(3):
        await api.exec(machine, "exec sleep 60", background=True)
    whole = (await api.http.get(f"/v1/machines/{machine}/processes")).json()["items"]
    await _assert_paged(api, f"/v1/machines/{machine}/processes", sorted(each["pid"] for each in whole), "pid")
    assert await _pages(api, f"/v1/machines/{machine}/ports") == [[]]  # machines of a test have none of their own
    assert_problem(await api.http.get(f"/v1/machines/{machine}/ports?limit=0"), 422)


async def test_a_directory_is_listed_page_by_page_whatever_its_names_hold(api: MachineApi) -> None:
    machine = await api.create()
    names = sorted(["a", "b b", "c\nd", "ü", "x" * 250])
    await api.exec(machine, "mkdir d && cd d && touch a 'b b' $'c\\nd' ü " + "x" * 250)
    await _assert_paged(api, f"/v1/machines/{machine}/files/workspace/d?list=1", names, "name")


async def test_pins_are_listed_page_by_page(api: MachineApi) -> None:
    conversation = await api.api.create()
    sent = [(await api.api.send(conversation, f"message {number}"))["message_id"] for number in range(5)]
    for message in sent[::-1]:
        await api.http.put(f"/v1/conversations/{conversation}/pins/{message}")
    await _assert_paged(api, f"/v1/conversations/{conversation}/pins", sent, "message")
