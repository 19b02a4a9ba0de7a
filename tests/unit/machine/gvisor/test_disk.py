"""Copies of sparse files, and which paths can be mounted."""

import os
from pathlib import Path

import pytest

from outlive.base import InvalidError
from outlive.machine.backends.gvisor.disk import check_plain, copy_sparse


@pytest.mark.parametrize("places", [(), (0,), (5 << 20,), (0, 3 << 20, (64 << 20) - 10)])
def test_a_sparse_file_is_copied_byte_for_byte_and_stays_sparse(tmp_path: Path, places: tuple[int, ...]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open(source, "wb") as file:
        file.truncate(64 << 20)
        for place in places:
            file.seek(place)
            file.write(b"something\n")
    copy_sparse(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert os.stat(target).st_blocks * 512 <= 64 << 10


@pytest.mark.parametrize("path", ["relative", "/a,b", "/a:b", "/a b", "/a\\b", '/a"b', "/a\nb", ""])
def test_a_path_that_the_options_of_a_mount_would_misread_is_refused(path: str) -> None:
    with pytest.raises(InvalidError):
        check_plain(Path(path))
    check_plain(Path("/var/lib/outlive/bases/0f-9_x.y/tree"))
