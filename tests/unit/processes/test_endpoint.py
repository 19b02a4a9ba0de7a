"""endpoint.json: private, atomic, and with a token that stays."""

import json
import stat
from pathlib import Path

from outlive.processes.endpoint import Endpoint, publish, read_endpoint


def test_the_file_is_readable_by_its_owner_only_and_holds_url_and_token(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    endpoint = publish(path, tmp_path, "http://127.0.0.1:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"url": "http://127.0.0.1:1", "token": endpoint.token}
    assert len(endpoint.token) >= 43  # 256 bits in base64


def test_the_token_stays_when_the_url_changes(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    first = publish(path, tmp_path, "http://127.0.0.1:1")
    assert publish(path, tmp_path, "http://127.0.0.1:2").token == first.token
    assert read_endpoint(path) == Endpoint("http://127.0.0.1:2", first.token)


def test_a_guest_gets_the_token_and_leaves_the_address(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    first = publish(path, tmp_path, "http://127.0.0.1:1")
    guest = publish(path, tmp_path, "http://127.0.0.1:2", keeps_address=True)
    assert guest == Endpoint("http://127.0.0.1:2", first.token)
    assert read_endpoint(path) == first
    path.unlink()
    assert read_endpoint(path) is None
    alone = publish(path, tmp_path, "http://127.0.0.1:2", keeps_address=True)  # there is none to keep
    assert read_endpoint(path) == alone


def test_two_homes_get_two_tokens(tmp_path: Path) -> None:
    tokens = {publish(tmp_path / name, tmp_path, "http://127.0.0.1:1").token for name in ("a", "b")}
    assert len(tokens) == 2


def test_a_token_of_the_settings_wins(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    publish(path, tmp_path, "http://127.0.0.1:1")
    assert publish(path, tmp_path, "http://127.0.0.1:1", "t" * 40).token == "t" * 40


def test_a_file_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    publish(path, tmp_path, "http://127.0.0.1:1")
    path.chmod(0o644)
    publish(path, tmp_path, "http://127.0.0.1:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    for damage in ("", "{", "[]", '{"url": 1, "token": 2}', '{"url": "x", "token": ""}', "null"):
        path.write_text(damage)
        assert read_endpoint(path) is None
    endpoint = publish(path, tmp_path, "http://127.0.0.1:1")
    assert read_endpoint(path) == endpoint


def test_a_leftover_of_a_crash_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.json"
    (tmp_path / ".endpoint.json.new").write_text("half")
    publish(path, tmp_path, "http://127.0.0.1:1")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["endpoint.json", "endpoint.lock"]


def test_the_token_is_not_shown_by_accident(tmp_path: Path) -> None:
    endpoint = publish(tmp_path / "endpoint.json", tmp_path, "http://127.0.0.1:1")
    assert endpoint.token not in repr(endpoint)
