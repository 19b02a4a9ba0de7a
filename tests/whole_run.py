"""All tests, as `make test` runs them: several at a time, then once more, alone, the few of real stacks that failed.

A machine that is shared with others stands still at times, and a test that drives six real processes can lose a race
against a deadline then. Such a test gets a second try with the machine to itself, and its name is printed as UNSTEADY
in both cases: a list to read and to mend, not to get used to. Rules:

Rule 1: only tests under STACKS, which drive processes or machines, get one. What is pure has no excuse.
Rule 2: at most MOST of them. More than that is no bad luck.
Rule 3: what fails alone has failed. What was interrupted, or could not be collected, is not tried again.

`--times N` (`make test TIMES=N`) does all of it N times in a row: what one run leaves behind must not trouble the next.

`scripts/check` runs beside them: it is one process that computes, and has a core to itself while tests wait. What it
says is shown at once. The last line counts: "N passed, N failed".
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

STACKS = ("tests/contract/", "tests/crash/", "tests/integration/", "tests/security/")
MOST = 5
AT_ONCE = 4  # on two cores: with three they wait for a quarter of the time in which real stacks are driven
_CHECK_WITHIN_S = 600.0
_FAILED = 1  # pytest's exit code for "some tests failed", and for nothing else
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_GROUP = re.compile(r"@[\w-]+$")  # what --dist loadgroup adds to the name of a test that has a group
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")


def may_try_again(failed: Sequence[str]) -> bool:
    """Whether these failures may be bad luck."""
    return 0 < len(failed) <= MOST and all(name.startswith(STACKS) for name in failed)


def counts(closing_line: str) -> dict[str, int]:
    """What pytest's closing line counts; errors of fixtures are failures."""
    found = {"passed": 0, "failed": 0, "skipped": 0}
    for number, word in _COUNT.findall(closing_line):
        found["failed" if word.startswith("error") else word] += int(number)
    return found


def after_second_try(found: dict[str, int], alone: dict[str, int]) -> dict[str, int]:
    """What failed alone has failed, whatever it counted for before: a test can fail, and its fixtures once more."""
    return {**found, "passed": found["passed"] + alone["passed"], "failed": alone["failed"]}


def closing_line(found: dict[str, int]) -> str:
    """One that any reader of test runs understands."""
    skipped = f", {found['skipped']} skipped" if found["skipped"] else ""
    return f"{found['passed']} passed, {found['failed']} failed{skipped}"


def _pytest(*arguments: str) -> tuple[int, dict[str, int]]:
    """Run it, show what it says as it says it, and read its closing line."""
    last = ""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last = line if line.startswith("=") else last
    return process.returncode, counts(last)


def _run_all(arguments: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The exit code, and what passed and failed."""
    _LAST_FAILED.unlink(missing_ok=True)  # names of tests that are gone would stay in it
    # In the order of `conftest`: what takes longest comes first, so that no process is left with it at the end.
    code, found = _pytest("-n", str(AT_ONCE), "--dist", "loadgroup", "--no-loadscope-reorder", *arguments)
    if code != _FAILED:
        return code, found
    failed = sorted({_GROUP.sub("", name) for name in json.loads(_LAST_FAILED.read_text("utf-8"))})
    if not may_try_again(failed):
        return code, found
    print(f"\n{len(failed)} of real stacks failed, and are tried once more, alone.", flush=True)
    code, alone = _pytest("-p", "no:randomly", *failed)
    for name in failed:
        print(f"UNSTEADY {name}")
    return code, after_second_try(found, alone)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test", allow_abbrev=False, add_help=False)
    parser.add_argument("--times", type=int, default=1)
    known, for_pytest = parser.parse_known_args(arguments)
    if known.times < 1:
        parser.error("--times (TIMES of make test) is 1 or more")
    for time in range(1, known.times + 1):
        if known.times > 1:
            print(f"Whole run {time} of {known.times}", flush=True)
        if (code := _one_run(for_pytest)) != 0:
            return code
    return 0


def _one_run(arguments: Sequence[str]) -> int:
    """All tests once, with `scripts/check` beside them. The exit code."""
    with subprocess.Popen(["scripts/check"], start_new_session=True) as check:
        try:
            code, found = _run_all(arguments)
            checked = _end_of(check)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(check.pid, signal.SIGKILL)
    if checked != 0:
        print("scripts/check has failed; what it said is above. It counts as one that failed.")
        found["failed"] += 1
    print(closing_line(found))
    return code or checked


def _end_of(check: "subprocess.Popen[bytes]") -> int:
    try:
        return check.wait(_CHECK_WITHIN_S)
    except subprocess.TimeoutExpired:
        print(f"scripts/check did not end within {_CHECK_WITHIN_S:g} s.")
        return _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
