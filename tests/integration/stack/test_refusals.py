"""What is refused before anything starts, TLS, and an API without a supervisor."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home, make_certificate, trusting


@pytest.mark.parametrize("command", [("up", "--detach"), ("api",)])
def test_a_taken_port_is_named_with_what_to_do(home: Home, command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = home.run(*command, "--port", str(port))
    assert result.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken" in result.stderr
    assert "--port" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home.path / "run" / "supervisor.json").exists()
    assert not (home.path / "endpoint.json").exists()


def test_a_taken_port_is_found_by_the_doctor(home: Home) -> None:
    home.path.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = home.run("doctor", "--json", OUTLIVE_API__PORT=str(taken.getsockname()[1]))
    assert result.returncode == 1
    assert [each["name"] for each in json.loads(result.stdout)["findings"] if each["level"] == "fail"] == ["port"]


@pytest.mark.parametrize("command", [("up", "--detach", "--json"), ("api",)])
def test_the_network_is_refused_without_tls_or_the_flag(home: Home, command: tuple[str, ...]) -> None:
    result = home.run(*command, "--host", "0.0.0.0")
    assert result.returncode == 2
    assert "readable by anyone on the path" in result.stderr
    assert "--allow-cleartext-network" in result.stderr
    if "--json" in command:
        assert json.loads(result.stdout)["code"] == "api.cleartext_network"


def test_an_unknown_setting_in_the_file_exits_with_2_and_names_it(home: Home) -> None:
    home.path.mkdir()
    (home.path / "outlive.toml").write_text("[api]\nprot = 1\n")
    result = home.run("up")
    assert result.returncode == 2
    assert "api.prot" in result.stderr
    assert home.run("down").returncode == 0  # a stack can be stopped whatever the other settings say
    doctor = home.run("doctor")
    assert doctor.returncode == 1
    assert "api.prot" in doctor.stdout


def test_with_the_flag_it_listens_on_the_network_and_health_needs_the_token(home: Home) -> None:
    home.up("--host", "0.0.0.0", "--allow-cleartext-network")
    assert home.endpoint["url"].startswith("http://127.0.0.1:")
    assert home.is_ready()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(home.endpoint["url"] + "/readyz", timeout=10)
    refused.value.close()
    assert refused.value.code == 401
    assert home.run("status").returncode == 0


def test_tls_works_with_a_certificate_of_ones_own(home: Home, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    home.up("--tls-cert", str(cert), "--tls-key", str(key))
    url = home.endpoint["url"]
    assert url.startswith("https://127.0.0.1:")
    with trusting(cert).open(url + "/readyz", timeout=10) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url + "/readyz", timeout=10)
    assert home.run("status").returncode == 0  # knows the certificate from the record
    assert home.run("list", SSL_CERT_FILE=str(cert)).returncode == 0
    untrusting = home.run("list", "--json")
    assert untrusting.returncode == 5
    assert json.loads(untrusting.stdout)["code"] == "api.untrusted"
    assert "SSL_CERT_FILE" in untrusting.stderr
    assert "outlive up" not in untrusting.stderr


def test_with_tls_clients_are_told_the_name_that_the_certificate_is_for(home: Home, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    url = home.up("--tls-cert", str(cert), "--tls-key", str(key), OUTLIVE_API__ALLOWED_HOSTS='["outlive.test"]')["url"]
    assert url.startswith("https://127.0.0.1:")  # the supervisor's own question needs no name
    assert home.endpoint["url"] == url.replace("127.0.0.1", "outlive.test")
    doctor = home.run(
        "doctor",
        OUTLIVE_API__ALLOWED_HOSTS='["outlive.test"]',
        OUTLIVE_API__TLS_CERT=str(cert),
        OUTLIVE_API__TLS_KEY=str(key),
    )
    assert doctor.returncode == 0, doctor.stdout


def _start_api(home: Home, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen([*COMMAND, "api"], env=home.environment, stderr=file, stdin=subprocess.DEVNULL)


def _url_in(log: Path) -> str:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return next((line["url"] for line in lines if line["message"] == "serving"), "")


def test_an_open_stream_does_not_hold_up_the_end_of_an_api(home: Home, tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    with _start_api(home, log) as api:
        try:
            eventually_sync(lambda: log.exists() and bool(_url_in(log)), 30)
            eventually_sync(home.is_ready, 30)
            conversation = home.create("watched")
            stream = urllib.request.urlopen(
                urllib.request.Request(
                    f"{home.endpoint['url']}/v1/conversations/{conversation}/stream",
                    headers={"Authorization": f"Bearer {home.endpoint['token']}"},
                ),
                timeout=30,
            )
            with stream:
                assert stream.readline()
                api.send_signal(signal.SIGTERM)
                stream.read()  # to its end: the server closes it
                assert api.wait(20) == 0
        finally:
            api.kill()
    assert "timeout graceful shutdown exceeded" not in log.read_text()


def test_two_apis_of_one_home_share_a_broker_and_the_survivor_takes_it_over(home: Home, tmp_path: Path) -> None:
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    with _start_api(home, logs[0]) as first, _start_api(home, logs[1]) as second:
        try:
            eventually_sync(lambda: all(log.exists() and _url_in(log) for log in logs), 30)
            urls = [_url_in(log) for log in logs]
            assert len(set(urls)) == 2
            created = home.call("POST", "/v1/conversations", {"title": "shared"}, urls[0])["id"]
            assert home.call("GET", f"/v1/conversations/{created}", url=urls[1])["title"] == "shared"
            socket_path = home.path / "run" / "feed.sock"
            holder = first if _listens(first.pid, socket_path) else second
            other, other_url = (second, urls[1]) if holder is first else (first, urls[0])
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            eventually_sync(lambda: _listens(other.pid, socket_path))
            assert home.call("GET", f"/v1/conversations/{created}", url=other_url)["title"] == "shared"
        finally:
            first.kill()
            second.kill()


def _listens(pid: int, path: Path) -> bool:
    """Whether this process has the listening unix socket of that path."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    inodes = {row[6] for row in rows if row[-1] == str(path) and row[3] == "00010000"}
    descriptors = Path(f"/proc/{pid}/fd")
    links = set()
    for each in descriptors.iterdir():
        with suppress(OSError):  # closed while we looked
            links.add(os.readlink(each))
    return any(f"socket:[{inode}]" in links for inode in inodes)
