"""Kubernetes' own Python client, which nobody here wrote, works with a terminal as with a pod."""

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from kubernetes.client import Configuration
from kubernetes.stream.ws_client import WSClient

from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import TOKEN
from integration.api.terminals import WITHIN_S, address, open_terminal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


def client_of(url: str, *, binary: bool = False, protocol: str | None = None) -> Any:
    make: Any = WSClient
    configuration: Any = Configuration
    headers = {"authorization": f"Bearer {TOKEN}"}
    if protocol is not None:
        headers["sec-websocket-protocol"] = protocol
    return make(configuration(), url, headers, capture_all=True, binary=binary)


def read_until(client: Any, text: str) -> str:
    seen: str = ""
    deadline = time.monotonic() + WITHIN_S
    while text not in seen:
        assert time.monotonic() < deadline, seen
        assert client.is_open(), seen
        seen += client.read_stdout(timeout=1)
    return seen


async def _with(url: str, use: Callable[[Any], None], **given: Any) -> None:
    def run() -> None:
        client = client_of(url, **given)
        try:
            use(client)
        finally:
            client.close()
            client.sock.shutdown()  # when the server has closed, the line above leaves its socket open

    await anyio.to_thread.run_sync(run)


async def test_it_types_reads_resizes_and_gets_the_exit_code(api: MachineApi) -> None:
    terminal = await open_terminal(
        api, command="stty -echo; echo ready; read x; echo got $x; read y; stty size; exit 5"
    )

    def use(client: Any) -> None:
        assert client.subprotocol == "v5.channel.k8s.io"
        read_until(client, "ready\r\n")
        client.write_stdin("grüße\n")  # as text, which is what it makes of a str
        read_until(client, "got grüße\r\n")
        client.write_channel(4, json.dumps({"Height": 50, "Width": 150}))
        client.write_stdin("\n")
        read_until(client, "50 150\r\n")
        client.run_forever(timeout=WITHIN_S)
        assert not client.is_open()
        assert client.returncode == 5

    await _with(address(api.api, terminal, mode="type", **{"from": 0}), use)


async def test_a_program_that_succeeds_is_a_success_and_bytes_are_bytes(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty raw -echo; printf 'ready'; head -c 4 | od -An -tx1")

    def use(client: Any) -> None:
        seen = b""
        while b"ready" not in seen:
            seen += client.read_stdout(timeout=1)
        client.write_stdin(b"\x00\xff\xc3\x28")
        client.run_forever(timeout=WITHIN_S)
        assert client.returncode == 0
        assert b"00 ff c3 28" in client.read_all()

    await _with(address(api.api, terminal, mode="type", **{"from": 0}), use, binary=True)


async def test_an_older_one_that_asks_for_v4_gets_it(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo ready; exit 3")

    def use(client: Any) -> None:
        assert client.subprotocol == "v4.channel.k8s.io"
        client.run_forever(timeout=WITHIN_S)
        assert not client.is_open()
        assert "ready" in client.read_all()

    await _with(address(api.api, terminal, **{"from": 0}), use, protocol="v4.channel.k8s.io")


async def test_closing_its_input_ends_neither_the_terminal_nor_the_output(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo ready; sleep 0.2; echo later; exec cat")

    def use(client: Any) -> None:
        client.close_channel(0)
        read_until(client, "later\r\n")

    await _with(address(api.api, terminal, mode="type", **{"from": 0}), use)
    assert (await api.http.get(f"/v1/terminals/{terminal}")).json()["state"] == "open"
