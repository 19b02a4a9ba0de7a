"""The lock and the record of a supervisor."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from outlive.base import ConflictError
from outlive.processes import proc
from outlive.processes.record import (
    ChildRecord,
    StackRecord,
    hold_lock,
    is_locked,
    read_record,
    remove_record,
    write_record,
)

HOLDER = """
import sys
from pathlib import Path
from outlive.processes.record import hold_lock
with hold_lock(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


def _record() -> StackRecord:
    me = proc.find(os.getpid())
    assert me is not None
    gone = ChildRecord("api", me.pid, me.started - 1, 7)  # our pid, but an earlier process
    return StackRecord(me.pid, me.started, me.boot, "http://x:1", None, (gone,))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = _record()
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert record.is_running
    assert not proc.is_alive(record.process_of(record.children[0]))
    remove_record(tmp_path)
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"pid": 1}', '{"children": [1]}', "null"])
def test_a_damaged_record_is_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / "supervisor.json").write_text(damage)
    assert read_record(tmp_path) is None


def test_only_one_holds_the_lock_and_a_killed_holder_frees_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ConflictError, match="already running"), hold_lock(tmp_path):
            pass
        assert is_locked(tmp_path)
        holder.kill()
        holder.wait()
    assert not is_locked(tmp_path)
    with hold_lock(tmp_path):
        pass
    with hold_lock(tmp_path):
        pass


def test_a_home_that_was_never_used_has_no_lock_and_gets_none_by_looking(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert os.listdir(tmp_path) == []


def test_one_that_only_looks_does_not_stop_a_supervisor_from_starting(tmp_path: Path) -> None:
    with hold_lock(tmp_path):
        pass
    with (tmp_path / "supervisor.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as `is_locked` does, for a moment
        leaving = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        leaving.start()
        with hold_lock(tmp_path):
            assert is_locked(tmp_path)
        leaving.join()
