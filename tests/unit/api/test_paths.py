"""Ports have one spelling, ranges one meaning."""

import pytest

from outlive.api.paths import ByteRange, parse_port, parse_range, path_in_machine
from outlive.base import ExhaustedError, InvalidError


@pytest.mark.parametrize(("text", "port"), [("1", 1), ("80", 80), ("65535", 65_535)])
def test_a_port_in_plain_decimal_is_read(text: str, port: int) -> None:
    assert parse_port(text) == port


@pytest.mark.parametrize(
    "text", ["", "0", "02280", "+80", "-1", "65536", "99999", "8e3", "0x50", "８０", "٨٠", " 80", "80 ", "80\n", "1_0"]
)
def test_a_port_written_in_any_other_way_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse_port(text)
    assert refused.value.code == "port.malformed"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, None),
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=0-", ByteRange(0, 10)),
        ("bytes= 3 - 4", ByteRange(3, 2)),
        ("bytes=-3", ByteRange(7, 3)),
        ("bytes=-", None),
        ("bytes=4-3", None),
        ("bytes=0-1,3-4", None),
        ("octets=0-1", None),
    ],
)
def test_a_range_is_read_or_ignored(header: str | None, found: ByteRange | None) -> None:
    assert parse_range(header, 10) == found


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_a_range_beyond_the_file_is_refused_with_its_size(header: str) -> None:
    with pytest.raises(ExhaustedError) as refused:
        parse_range(header, 10)
    assert refused.value.facts == {"size": 10}


@pytest.mark.parametrize(
    ("address", "path"),
    [
        (b"etc/hosts", "/etc/hosts"),
        (b"/etc/hosts", "/etc/hosts"),
        (b"%2Fetc%2Fhosts", "/etc/hosts"),
        (b"workspace/a", "/workspace/a"),
        (b"a.txt", "/workspace/a.txt"),
        (b"src/main.py", "/workspace/src/main.py"),
        (b"./src//main.py", "/workspace/src/main.py"),
        (b"/src/main.py", "/src/main.py"),
        (b"etcetera", "/workspace/etcetera"),
        (b"", "/"),
        (b"a%0Ab%25", "/workspace/a\nb%"),
    ],
)
def test_a_path_is_taken_from_the_root_or_from_the_workspace(address: bytes, path: str) -> None:
    assert path_in_machine(b"/v1/machines/m/files/" + address, b"/files/").path == path


@pytest.mark.parametrize("address", [b"../x", b"a/../../x", b"a%00b", b"%ff", b"a" * 256, b"%2e%2e/x"])
def test_a_path_that_tries_something_is_refused(address: bytes) -> None:
    with pytest.raises(InvalidError, match=r"path|name"):
        path_in_machine(b"/v1/machines/m/files/" + address, b"/files/")
