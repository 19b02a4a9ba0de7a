"""Which addresses may be listened on, and what clients are told."""

import socket
from pathlib import Path

import pytest

from outlive.base import ConflictError, InvalidError
from outlive.processes.listen import (
    allowed_hosts,
    check_address,
    check_certificate,
    client_url,
    is_loopback,
    listen,
    url_of,
)
from outlive.wiring.sections import ApiSettings, NodeSettings

CERT = {"tls_cert": Path("/nowhere/cert.pem"), "tls_key": Path("/nowhere/key.pem")}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert is_loopback(host)
    check_address(ApiSettings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "localhost.example.org", ""])
def test_the_network_is_refused_without_tls_or_the_flag(host: str) -> None:
    assert not is_loopback(host)
    api = ApiSettings.model_construct(host=host)
    with pytest.raises(InvalidError, match="--allow-cleartext-network") as refused:
        check_address(api)
    assert refused.value.code == "api.cleartext_network"
    check_address(api.model_copy(update={"allow_cleartext_network": True}))
    check_address(api.model_copy(update=CERT))


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with listen(ApiSettings(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"Port {port} .*--port N") as refused:
            listen(ApiSettings(port=port))
    assert refused.value.code == "api.port_taken"


def test_port_0_takes_a_free_one_and_the_url_names_it_without_a_path() -> None:
    api = ApiSettings(port=0)
    with listen(api) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(api, listener) == f"http://127.0.0.1:{port}"


def test_the_url_of_all_addresses_is_loopback_and_says_https_with_tls() -> None:
    api = ApiSettings(host="0.0.0.0", port=0, **CERT)
    with listen(api) as listener:
        assert url_of(api, listener) == f"https://127.0.0.1:{listener.getsockname()[1]}"


def test_an_unknown_host_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidError, match=r"203\.0\.113\.9"):
        listen(ApiSettings(host="203.0.113.9", port=0))


def test_a_certificate_that_cannot_be_used_is_told_before_anything_starts(tmp_path: Path) -> None:
    junk = tmp_path / "cert.pem"
    junk.write_text("junk")
    for api in (ApiSettings(**CERT), ApiSettings(tls_cert=junk, tls_key=junk)):
        with pytest.raises(InvalidError, match="PEM") as refused:
            check_certificate(api)
        assert refused.value.code == "api.bad_certificate"
    node = NodeSettings(address="https://h:1", tls_cert=junk, tls_key=junk)
    with pytest.raises(InvalidError, match="PEM") as refused:
        check_certificate(node)
    assert refused.value.code == "node.bad_certificate"


def test_on_loopback_only_its_names_and_those_of_the_settings_are_ours() -> None:
    api = ApiSettings(allowed_hosts=("Agents.Example.org",))
    assert allowed_hosts(api) == {"127.0.0.1", "localhost", "[::1]", "agents.example.org"}


@pytest.mark.parametrize(("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("LocalHost", "localhost")])
def test_the_address_that_we_are_bound_to_is_ours(host: str, name: str) -> None:
    assert name in allowed_hosts(ApiSettings(host=host))


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ((), "127.0.0.1"),
        (("10.0.0.1", "[fe80::1]"), "127.0.0.1"),
        (("10.0.0.1", "Agents.example.org", "other.example.org"), "agents.example.org"),
    ],
)
def test_with_tls_clients_are_told_the_first_name_that_the_settings_have(names: tuple[str, ...], host: str) -> None:
    api = ApiSettings(allowed_hosts=names, **CERT)
    assert client_url(api, "https://127.0.0.1:8484") == f"https://{host}:8484"
    plain = ApiSettings(allowed_hosts=names)
    assert client_url(plain, "http://127.0.0.1:8484") == "http://127.0.0.1:8484"


def test_on_the_network_this_hosts_own_names_are_ours_too() -> None:
    names = allowed_hosts(ApiSettings(host="0.0.0.0"))
    assert socket.gethostname().lower() in names
    assert "[fe80::1]" in allowed_hosts(ApiSettings(host="fe80::1"))
