"""Programs of the host are run with a deadline, and end with all that they started."""

import os
from pathlib import Path

import pytest

from eventually import eventually
from outlive.base import DeadlineError, UnavailableError
from outlive.machine.backends.gvisor.commands import check_command, run_command
from outlive.machine.backends.gvisor.processes import find_by_argument

pytestmark = pytest.mark.anyio


async def test_the_code_and_the_last_words_are_told(tmp_path: Path) -> None:
    ended = await run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], output=tmp_path / "log", deadline_s=10)
    assert ended == (3, "out\nerr")
    with pytest.raises(UnavailableError, match="no word"):
        await check_command(["false"], output=tmp_path / "log", deadline_s=10)


async def test_of_many_words_only_the_last_are_told(tmp_path: Path) -> None:
    ended = await run_command(["sh", "-c", "yes x | head -c 100000; echo last"], output=tmp_path / "log", deadline_s=10)
    assert ended.said.endswith("last")
    assert len(ended.said) <= 2_000


async def test_at_the_deadline_it_ends_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}"
    script = f"sh -c 'sleep 1000; true' {mark} & sleep 1000"
    with pytest.raises(DeadlineError) as raised:
        await run_command(["sh", "-c", script, mark], output=tmp_path / "log", deadline_s=0.2)
    assert raised.value.code == "sandbox.slow"
    await eventually(lambda: find_by_argument(mark) == [])


async def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no-such-program"):
        await run_command(["no-such-program"], output=tmp_path / "log", deadline_s=10)


async def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    ended = await run_command(["sh", "-c", "ps -o sid= -p $$; echo $$"], output=tmp_path / "log", deadline_s=10)
    session, pid = ended.said.split()
    assert session == pid
