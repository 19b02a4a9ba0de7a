"""What `make test` tries a second time, and how it counts."""

import re
import subprocess
import sys
from pathlib import Path

import whole_run


def test_a_few_failures_of_real_stacks_are_tried_again() -> None:
    assert whole_run.may_try_again(["tests/crash/loop/test_turns.py::test_a[node]"] * whole_run.MOST)


def test_many_failures_are_no_bad_luck() -> None:
    assert not whole_run.may_try_again(["tests/crash/loop/test_turns.py::test_a"] * (whole_run.MOST + 1))


def test_what_is_pure_has_no_second_try() -> None:
    stack = "tests/integration/stack/test_stack.py::test_a"
    for pure in ("tests/unit/base/test_ids.py::test_b", "tests/replay/test_replay.py::test_c", "tests/style/test_d.py"):
        assert not whole_run.may_try_again([stack, pure])


def test_a_run_that_failed_without_a_failed_test_is_not_tried_again() -> None:
    assert not whole_run.may_try_again([])


def test_the_closing_line_counts_what_failed_twice_as_failed_and_the_rest_as_passed() -> None:
    found = whole_run.counts("= 2 failed, 5660 passed, 1 skipped, 1 error in 1200.00s (0:20:00) =")
    assert whole_run.closing_line(found) == "5660 passed, 3 failed, 1 skipped"
    again = whole_run.after_second_try(found, {"passed": 1, "failed": 1, "skipped": 0})
    assert whole_run.closing_line(again) == "5661 passed, 1 failed, 1 skipped"


def test_tests_that_share_a_stack_stay_with_one_process(tmp_path: Path) -> None:
    """They do by a name that one plugin gives and another program has to keep: with some versions nobody does."""
    (tmp_path / "test_shared.py").write_text(
        "import pytest\n"
        "@pytest.mark.xdist_group('together')\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_one(n: int) -> None: ...\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-v",
        "-p",
        "no:randomly",
        str(tmp_path),
    ]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True).stdout
    assert len(re.findall(r"PASSED .*@together", said)) == 8
    assert len(set(re.findall(r"\[(gw\d)\]", said))) == 1
