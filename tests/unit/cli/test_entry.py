"""The first moments of the command: Ctrl-C ends it without a word, and a flag in the wrong place is shown its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.base import InvalidError
from outlive.cli.definition_file import told_by_field
from outlive.cli.exit import INTERRUPTED
from outlive.cli.main import run

# Ctrl-C in the middle of what is imported for a command.
_INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["--version"]
"""


@pytest.mark.parametrize(
    "start",
    ["from outlive.__main__ import main; main()", "import runpy; runpy.run_module('outlive', None, '__main__')"],
)
def test_ctrl_c_while_the_command_is_being_loaded_ends_it_without_a_word(start: str) -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTING + start], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, b"", b"")


def test_one_who_ignores_ctrl_c_goes_on_doing_so() -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    command = [sys.executable, "-c", ignoring + _INTERRUPTING + "from outlive.__main__ import main; main()"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, b"outlive")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_that_takes_time_is_loaded_before_ctrl_c_has_a_meaning() -> None:
    shown = "import sys; before = set(sys.modules); import outlive.__main__; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", shown], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"typing", "typer", "pydantic", "anyio", "asyncio", "outlive.cli", "outlive.base"}
    assert heavy & set(done.stdout.split()) == set()


def test_the_installed_command_begins_there() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert 'outlive = "outlive.__main__:main"' in project.read_text()


# What Python does at its end is told, so that its absence can be.
_ENDING = """
import atexit, logging, sys
import outlive.cli.main as command

def run(arguments):
    logging.basicConfig(stream=sys.stderr)
    if arguments[0] == "with":
        import temporalio.service
    atexit.register(print, "Python ends")
    logging.warning("logged")
    print("printed")
    if arguments[1:] == ["bug"]:
        raise KeyError("a bug")
    if arguments[1:] == ["exit"]:
        sys.exit(4)
    return 3

command.run = run
command.main()
"""


@pytest.mark.parametrize(("which", "last"), [("without", b"Python ends\n"), ("with", b"")])
def test_where_temporals_threads_run_nothing_is_left_for_them_to_come_back_to(which: str, last: bytes) -> None:
    """They abort the process if they come back while Python is being taken down."""
    done = subprocess.run([sys.executable, "-c", _ENDING, which], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, b"printed\n" + last)
    assert b"logged" in done.stderr


@pytest.mark.parametrize("which", ["without", "with"])
def test_a_bug_is_shown_and_an_exit_is_kept_whether_or_not_temporal_was_asked(which: str) -> None:
    for what, code, shown in (("bug", 1, b"KeyError: 'a bug'"), ("exit", 4, b"logged")):
        done = subprocess.run([sys.executable, "-c", _ENDING, which, what], capture_output=True, timeout=60)
        assert (done.returncode, done.stdout.splitlines()[0]) == (code, b"printed")
        assert shown in done.stderr
        assert (b"Python ends" in done.stdout) == (which == "without")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_with_nowhere_to_print_to_the_code_is_still_its_own(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" with {closed}', sys.executable, _ENDING]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 3


def test_a_flag_before_the_command_is_told_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "status"]) == 2
    told = capsys.readouterr()
    assert "goes after the command" in told.err
    assert json.loads(told.out)["code"] == "cli.usage"


def test_a_field_that_the_api_refuses_has_its_name_in_the_file() -> None:
    with pytest.raises(InvalidError) as refused, told_by_field():
        raise InvalidError("request.invalid", "body.limits.memory_mib: Input should be a valid integer")
    assert refused.value.message == "limits.memory_mib: Input should be a valid integer"
    with pytest.raises(InvalidError, match="has no body"), told_by_field():
        raise InvalidError("request.malformed", "It has no body.")
