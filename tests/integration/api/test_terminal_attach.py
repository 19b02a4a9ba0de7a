"""Attaching over a real WebSocket, through a real API and a node's real wire, to programs on real PTYs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.terminals import attached, open_terminal, principal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_from_an_offset_every_byte_comes_once_and_then_how_it_ended(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="read x; echo got $x; exit 3")
    async with attached(api.api, terminal, mode="type", from_=0) as client:
        assert client.connection.subprotocol == "v5.channel.k8s.io"
        await client.until_status("offset")
        first = client.statuses[0]
        assert (first["terminal"], first["offset"], first["cols"], first["rows"]) == (terminal, 0, 80, 24)
        await client.type(b"this\n")
        assert await client.closed() == 1000
    assert client.output == b"this\r\ngot this\r\n"
    assert {"exit": 3, "signal": None} in client.statuses
    assert client.final is not None
    assert client.final["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert client.frames[-1][0] == 3
    shown = (await api.http.get(f"/v1/terminals/{terminal}")).json()
    assert (shown["state"], shown["exit_code"], shown["offset"]) == ("exited", 3, len(client.output))
