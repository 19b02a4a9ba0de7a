"""Log lines are JSON, log files stay small, and the end of one can be shown."""

import json
import logging
import os
import sys
from pathlib import Path

from outlive.processes.logs import JsonLines, rotate, tail


def test_a_line_is_one_json_object_with_what_was_added_and_the_exception() -> None:
    try:
        raise ValueError("over\ntwo lines")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, "f", 1, "it %s", ("failed",), sys.exc_info(), extra={"url": "u", "odd": {1}}
        )
    line = JsonLines().format(record)
    assert "\n" not in line
    parsed = json.loads(line)
    assert parsed["at"].endswith("Z")
    assert "ValueError: over\ntwo lines" in parsed["exception"]
    assert {key: parsed[key] for key in ("level", "logger", "message", "url", "odd")} == {
        "level": "error",
        "logger": "x",
        "message": "it failed",
        "url": "u",
        "odd": "{1}",
    }


def test_a_file_above_the_bound_is_moved_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"old" * 1000)
        rotate(path, 10_000)
        assert path.stat().st_size == 3000
        rotate(path, 100)
        writer.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert (tmp_path / "api.log.1").stat().st_size == 3000


def test_what_cannot_be_moved_aside_is_cut_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    path.write_bytes(b"old" * 1000)
    (tmp_path / "api.log.1").mkdir()  # nothing can be copied there
    rotate(path, 100)
    assert path.read_bytes() == b""


def test_what_cannot_be_rotated_at_all_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    rotate(tmp_path / "file" / "api.log", 1)
    (tmp_path / "api.log").mkdir()
    rotate(tmp_path / "api.log", 0)
    assert sorted(os.listdir(tmp_path)) == ["api.log", "file"]


def test_a_file_that_is_not_there_has_nothing_to_rotate_or_show(tmp_path: Path) -> None:
    rotate(tmp_path / "none.log", 1)
    assert tail(tmp_path / "none.log", 5) == []
    assert os.listdir(tmp_path) == []


def test_the_tail_is_the_last_lines_of_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\ntwo\n")
    begin = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"three\n\xff four\nfive\n")
    assert tail(path, 2) == ["� four", "five"]
    assert tail(path, 10, begin) == ["three", "� four", "five"]
    assert tail(path, 10, 10_000) == ["one", "two", "three", "� four", "five"]  # it was rotated meanwhile
