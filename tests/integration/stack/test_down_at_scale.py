"""`outlive down` on one host of many: of the machines that the API tells of, those of this host's node are its own."""

import os
from pathlib import Path

import anyio
import pytest

from integration.api.machines import open_machine_api
from integration.api.stack import TOKEN
from outlive.base import NodeId, new_node_id
from outlive.processes import proc
from outlive.processes.endpoint import publish
from outlive.processes.hibernate import hibernate_all, running_machines
from outlive.processes.record import StackRecord, write_record
from outlive.testing.machine_records import a_running_machine
from outlive.wiring.settings import Home

pytestmark = pytest.mark.anyio

MORE_THAN_A_PAGE = 120
WITHIN_S = 60.0


def _run_here(path: Path, url: str, node: NodeId) -> Home:
    """As if this process were the supervisor of a home whose API is at `url`."""
    home, me = Home(path), proc.find(os.getpid())
    assert me is not None
    home.run_path.mkdir(mode=0o700, exist_ok=True)
    node_path = path / "elsewhere"
    node_path.mkdir()
    (node_path / "id").write_text(node)
    write_record(home.run_path, StackRecord(me.pid, me.started, me.boot, url, None, node_path=str(node_path)))
    publish(home.endpoint_path, home.run_path, url, TOKEN)
    return home


async def test_down_hibernates_the_machines_of_its_own_node_and_of_no_other(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path) as api:
        mine = [await api.create() for _ in range(2)]
        theirs = [(await a_running_machine(api.node.records, new_node_id()))[0].id for _ in range(3)]
        home = _run_here(tmp_path, api.api.url, api.node.machines.node)
        said: list[str] = []
        await anyio.to_thread.run_sync(hibernate_all, home, said.append, WITHIN_S)
        states = {each: (await api.http.get(f"/v1/machines/{each}")).json()["state"] for each in (*mine, *theirs)}
        assert states == dict.fromkeys(mine, "hibernated") | dict.fromkeys(theirs, "running")
        assert said[0] == "hibernating 2 machines"


async def test_down_finds_every_machine_of_its_node_however_many_run_everywhere(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path) as api:
        node, other = new_node_id(), new_node_id()
        records = api.node.records
        wide = {"name": "\N{GRINNING FACE}" * 500}  # what one answer may hold is bounded in bytes too
        mine = {(await a_running_machine(records, node, **wide))[0].id for _ in range(MORE_THAN_A_PAGE)}
        for _ in range(MORE_THAN_A_PAGE):
            await a_running_machine(records, other)
        home = _run_here(tmp_path, api.api.url, node)
        found = await anyio.to_thread.run_sync(running_machines, home)
        assert (len(found), set(found)) == (len(mine), mine)


async def test_a_home_that_never_had_a_node_has_no_machines(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path) as api:
        await api.create()
        home = _run_here(tmp_path, api.api.url, new_node_id())
        (tmp_path / "elsewhere" / "id").unlink()
        assert await anyio.to_thread.run_sync(running_machines, home) == []
