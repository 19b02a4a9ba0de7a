"""Connecting to Temporal: a deadline, and errors of our own."""

import socket
import time
from pathlib import Path

import pytest

from outlive.base import InvalidError, UnavailableError
from outlive.machine.queues import CREATE, MACHINES, node_queue
from outlive.wiring.settings import Settings, read_settings
from outlive.wiring.temporal import connect_temporal, connect_temporal_lazily, read_temporal_address

pytestmark = pytest.mark.anyio


def _settings(home: Path, **temporal: object) -> Settings:
    return read_settings({"home": home, "temporal": temporal})


async def test_without_a_stack_it_is_said_in_time_how_to_start_one(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UnavailableError) as away:
        await connect_temporal(_settings(tmp_path), 0.2)
    assert time.monotonic() - began < 5
    assert away.value.code == "temporal.away"
    assert "outlive up" in away.value.message
    assert await connect_temporal_lazily(_settings(tmp_path)) is None


async def test_a_server_that_refuses_or_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for target in (address, "127.0.0.1:1"):
            began = time.monotonic()
            with pytest.raises(UnavailableError) as away:
                await connect_temporal(_settings(tmp_path, address=target), 0.5)
            assert time.monotonic() - began < 5
            assert away.value.is_retryable
            assert "temporal.address" in away.value.message


async def test_the_address_of_the_embedded_server_is_found_under_home(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    assert read_temporal_address(settings) is None
    settings.run_path.mkdir()
    settings.temporal_address_path.write_text("127.0.0.1:7233\n")
    assert read_temporal_address(settings) == "127.0.0.1:7233"
    client = await connect_temporal_lazily(settings)  # nobody listens: it connects when it is used
    assert client is not None
    assert client.service_client.config.target_host == "127.0.0.1:7233"


async def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    with pytest.raises(InvalidError) as refused:
        await connect_temporal(_settings(tmp_path, address="127.0.0.1:1", tls_ca=missing), 1.0)
    assert str(missing) in refused.value.message
    assert "temporal.tls_ca" in refused.value.message


@pytest.mark.parametrize(
    "temporal", [{"address": "no-port"}, {"address": "http://host:1"}, {"tls_cert": "a.pem"}, {"port": 70000}]
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, temporal: dict[str, object]) -> None:
    with pytest.raises(InvalidError) as refused:
        _settings(tmp_path, **temporal)
    assert "temporal" in refused.value.message


def test_an_api_key_turns_tls_on_and_is_never_shown(tmp_path: Path) -> None:
    settings = _settings(tmp_path, address="ns.tmprl.cloud:7233", api_key="key-of-mine")
    assert settings.temporal.has_tls
    assert not settings.temporal.is_embedded
    assert "key-of-mine" not in repr(settings)


def test_each_node_has_a_queue_of_its_own() -> None:
    queues = [MACHINES, CREATE, node_queue("node_1"), node_queue("node_2")]
    assert len(set(queues)) == len(queues)
