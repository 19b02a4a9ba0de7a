"""A running API with machines of processes and folders behind a node's real listeners."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from integration.api.stack import Api, open_parts, serve
from integration.node.local import LocalNode, open_local_node
from outlive.api import ApiParts, MachineParts, TerminalParts
from outlive.machine.backends.screens.ghostty import GhosttyScreens
from outlive.machine.caller import MachineCaller
from outlive.machine.environments import Environments
from outlive.machine.terminal.recording import Recordings
from outlive.storage.objects import open_objects
from outlive.storage.sqlite import open_sqlite


@dataclass(frozen=True)
class MachineApi:
    api: Api
    node: LocalNode

    @property
    def http(self) -> Any:
        return self.api.http

    async def create(self, **body: Any) -> str:
        answer = await self.api.http.post("/v1/machines", json=body)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["id"]
        return made

    async def exec(self, machine: str, command: str, **given: Any) -> dict[str, Any]:
        answer = await self.api.http.post(f"/v1/machines/{machine}/exec", json={"command": command, **given})
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    async def do(self, machine: str, verb: str, **body: Any) -> dict[str, Any]:
        answer = await self.api.http.post(f"/v1/machines/{machine}/{verb}", json=body)
        assert answer.is_success, answer.text
        done: dict[str, Any] = answer.json()
        return done


class Unbuilt:
    """Takes what shall be built, and leaves it: builds are tested with real machines."""

    async def build(self, digest: str, tries: int) -> None:
        pass


@asynccontextmanager
async def open_machine_api(home: Path, **changes: Any) -> AsyncIterator[MachineApi]:
    """`changes` replace fields of `ApiParts`."""
    async with (
        open_parts(home) as parts,
        open_sqlite(home / "machines.db") as database,
        open_local_node(home, database) as node,
    ):
        machines = machine_parts(node, parts, home)
        async with serve(replace(parts, **{"machines": machines, **changes})) as api:
            yield MachineApi(api, node)


def machine_parts(node: LocalNode, parts: ApiParts, home: Path) -> MachineParts:
    caller = MachineCaller(node.keeper, node.records.effects, node.door, parts.clock)
    objects = open_objects(str(home / "objects"))
    environments = Environments(node.records.environments, node.keeper, Unbuilt(), objects.get, parts.clock)
    terminals = TerminalParts(
        node.records.terminals, node.terminal_door, Recordings(objects, node.records.terminals), GhosttyScreens()
    )
    return MachineParts(node.keeper, caller, node.records, environments, objects.get, node.egress, terminals)
