"""A client finds its API: what is given, the environment, the file of the embedded stack, in this order."""

import json
from pathlib import Path

import pytest

from outlive.base import InvalidError, OutliveError, UnavailableError
from outlive.client.endpoint import Endpoint, find_endpoint


def write(home: Path, content: str) -> dict[str, str]:
    (home / "endpoint.json").write_text(content)
    return {"OUTLIVE_HOME": str(home)}


def test_what_is_given_wins_over_environment_and_file(tmp_path: Path) -> None:
    environ = write(tmp_path, json.dumps({"url": "http://127.0.0.1:1", "token": "file"}))
    assert find_endpoint(None, None, environ) == Endpoint("http://127.0.0.1:1", "file", is_from_file=True)
    environ |= {"OUTLIVE_URL": "http://127.0.0.1:2/", "OUTLIVE_TOKEN": "env"}
    assert find_endpoint(None, None, environ) == Endpoint("http://127.0.0.1:2", "env")
    assert find_endpoint("https://example.com", "given", environ) == Endpoint("https://example.com", "given")


def test_the_token_of_the_file_is_never_sent_to_another_address(tmp_path: Path) -> None:
    environ = write(tmp_path, json.dumps({"url": "http://127.0.0.1:1", "token": "file"}))
    assert find_endpoint("http://elsewhere:1", None, environ).token is None


def test_empty_variables_count_as_unset(tmp_path: Path) -> None:
    environ = write(tmp_path, json.dumps({"url": "http://127.0.0.1:1", "token": "file"}))
    environ |= {"OUTLIVE_URL": "", "OUTLIVE_TOKEN": ""}
    assert find_endpoint(None, None, environ) == Endpoint("http://127.0.0.1:1", "file", is_from_file=True)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("[::1]", True), ("localhost", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_is_known(host: str, is_loopback: bool) -> None:
    assert find_endpoint(f"http://{host}:1", None, {}).is_loopback == is_loopback


def test_without_a_stack_one_is_told_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="Run `outlive up`") as caught:
        find_endpoint(None, None, {"OUTLIVE_HOME": str(tmp_path)})
    assert caught.value.code == "endpoint.absent"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 1, "token": "x"}', '{"url": "http://h", "token": null}'])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(UnavailableError, match=r"endpoint\.json"):
        find_endpoint(None, None, write(tmp_path, content))


@pytest.mark.parametrize("url", ["localhost:80", "ftp://h", "http://", "http://h/v1", "http://h?x=1", "\n"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        find_endpoint(url, None, {})


@pytest.mark.parametrize("token", ["a\nb", "é", "\0"])
def test_what_is_no_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(OutliveError) as caught:
        find_endpoint("http://h", token, {})
    assert token not in str(caught.value)


def test_the_token_is_not_in_the_repr() -> None:
    assert "hush" not in repr(find_endpoint("http://h", "hush", {}))
