"""What was decided on a machine's connections to the outside, for people to read."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from outlive.base import MachineId, new_machine_id
from outlive.governance.egress_records import EgressDecision
from outlive.testing.machine_records import AT

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


def decided(machine: str, number: int, **fields: Any) -> EgressDecision:
    known = EgressDecision(
        MachineId(machine), AT + timedelta(seconds=number), number, "CONNECT", "a.example", 443, "allowed",
        "a.example:443", None, 0, 0,
    )  # fmt: skip
    return known._replace(**fields)


async def test_what_was_decided_is_read_oldest_first_page_by_page(api: MachineApi) -> None:
    machine, neighbour = await api.create(), await api.create()
    stored = [decided(machine, number) for number in range(1, 6)]
    ended = stored[4]._replace(verdict="ended", reason="done", address="192.0.2.7", bytes_up=3, bytes_down=1 << 40)
    await api.node.egress.store([*stored, ended, decided(neighbour, 1)])
    place = f"/v1/machines/{machine}/egress"
    first = (await api.http.get(f"{place}?limit=4")).json()
    second = (await api.http.get(f"{place}?limit=4&cursor={first['next']}")).json()
    items = [*first["items"], *second["items"]]
    assert [each["n"] for each in items] == [1, 2, 3, 4, 5, 6]
    assert (len(first["items"]), second["next"]) == (4, None)
    assert items[5] == {
        "n": 6,
        "at": "2030-01-02T03:04:10.000006Z",
        "connection": 5,
        "method": "CONNECT",
        "host": "a.example",
        "port": 443,
        "verdict": "ended",
        "reason": "done",
        "address": "192.0.2.7",
        "bytes_up": 3,
        "bytes_down": 1 << 40,
    }
    assert len((await api.http.get(f"/v1/machines/{neighbour}/egress")).json()["items"]) == 1
    assert_problem(await api.http.get(f"{place}?limit=0"), 422)


async def test_it_is_read_as_a_machine_s_history_is(api: MachineApi) -> None:
    machine = await api.create()
    await api.node.egress.store([decided(machine, 1)])
    await api.do(machine, "hibernate")
    assert len((await api.http.get(f"/v1/machines/{machine}/egress")).json()["items"]) == 1
    assert (await api.http.get(f"/v1/machines/{machine}")).json()["state"] == "hibernated", "asking wakes nobody"
    watcher = {"name": "watcher", "kind": "person", "rights": ["observe"]}
    token = (await api.http.post("/v1/principals", json=watcher)).json()["token"]
    seen = await api.http.get(f"/v1/machines/{machine}/egress", headers={"authorization": f"Bearer {token}"})
    assert seen.status_code == 200
    async with httpx.AsyncClient(base_url=api.api.url, trust_env=False, verify=False) as nobody:
        assert_problem(await nobody.get(f"/v1/machines/{machine}/egress"), 401)
    await api.http.delete(f"/v1/machines/{machine}")
    assert len((await api.http.get(f"/v1/machines/{machine}/egress")).json()["items"]) == 1, "what was done was done"
    unknown = await api.http.get(f"/v1/machines/{new_machine_id()}/egress")
    assert assert_problem(unknown, 404)["code"] == "machine.unknown"
