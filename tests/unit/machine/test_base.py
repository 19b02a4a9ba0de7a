"""References of bases: what is one, and that no other text gets as far as a path."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import InvalidError
from outlive.machine.base import Reference, check_key, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("debian", Reference("debian")),
        ("debian:nodejs", Reference("debian", packages=("nodejs",))),
        ("debian:npm,g++,nodejs,npm", Reference("debian", packages=("g++", "nodejs", "npm"))),
        ("host", Reference("host")),
        ("dir:/srv/tree", Reference("dir", path=Path("/srv/tree"))),
        ("tar:/srv/a:b.tar", Reference("tar", path=Path("/srv/a:b.tar"))),
        ("oci:/srv/image", Reference("oci", path=Path("/srv/image"))),
        ("oci:/srv/image.tar#python:3.13", Reference("oci", path=Path("/srv/image.tar"), name="python:3.13")),
    ],
)
def test_a_reference_is_taken_apart(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "ubuntu", "Debian", "host:", "host:/usr", "debian:", "debian:a b", "debian:--foo", "debian:x,,y"),
        *("dir:", "dir:relative", "tar:../x", "tar:/a/../b", "oci:/a\nb", "dir:/a\0b", "tar:/" + "x" * 5_000),
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        parse_reference(text)
    assert refused.value.code == "base.reference"


@given(st.text())
def test_no_text_gives_a_path_that_is_relative_or_climbs(text: str) -> None:
    for kind in ("dir", "tar", "oci"):
        try:
            path = parse_reference(f"{kind}:{text}").path
        except InvalidError:
            continue
        assert path is not None
        assert path.is_absolute()
        assert ".." not in path.parts


@pytest.mark.parametrize(
    "key", ["", "..", "d8e06d96f00a3ba30635af0c0d511b8", "D8E06D96F00A3BA30635AF0C0D511B8E", "a/" * 16]
)
def test_only_a_key_becomes_part_of_a_path(key: str) -> None:
    with pytest.raises(InvalidError):
        check_key(key)
