"""Every kind of error has an exit code, and errors leave as a sentence and a code."""

import json

import pytest

from outlive.base import KINDS, BrokenError, NotFoundError, OutliveError
from outlive.cli import main as command
from outlive.cli.exit import EXIT_CODES


def test_every_kind_has_an_exit_code_that_is_not_success() -> None:
    assert set(EXIT_CODES) == set(KINDS)
    assert set(EXIT_CODES.values()) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("kind", "code"), [("invalid", 2), ("not_found", 3), ("denied", 4), ("unauthenticated", 4), ("unavailable", 5)]
)
def test_the_codes_of_the_public_face_hold(kind: str, code: int) -> None:
    assert {**EXIT_CODES}[kind] == code  # type: ignore[index]


def _raise(error: BaseException) -> object:
    raise error


def test_an_error_is_one_line_on_stderr_and_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert command._guard(lambda: _raise(NotFoundError("thing.gone", "No such thing.")), as_json=False) == 3
    assert capsys.readouterr() == ("", "error: No such thing.\n")


def test_with_json_an_error_is_the_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    error = NotFoundError("thing.gone", "No such thing.")
    assert command._guard(lambda: _raise(error), as_json=True) == 3
    assert json.loads(capsys.readouterr().out) == {
        "kind": "not_found",
        "code": "thing.gone",
        "detail": "No such thing.",
    }


def test_an_error_that_ended_a_task_group_is_told_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [BrokenError("x.y", "It broke.")])])
    assert command._guard(lambda: _raise(group), as_json=False) == 1
    assert capsys.readouterr().err == "error: It broke.\n"


def test_a_bug_is_not_dressed_up_as_an_error_of_ours() -> None:
    error: OutliveError = BrokenError("x.y", "It broke.")
    with pytest.raises(ExceptionGroup):
        command._guard(lambda: _raise(ExceptionGroup("tasks", [error, KeyError("bug")])), as_json=False)
    with pytest.raises(KeyError):
        command._guard(lambda: _raise(KeyError("bug")), as_json=False)


def test_wrong_use_exits_with_2_and_says_so_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["status", "--json", "--nope"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "cli.usage"


def test_a_json_flag_behind_the_end_of_options_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["status", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["up", "down", "status", "doctor", "api"])
def test_every_command_of_the_stack_shows_examples_and_takes_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert "--json" in shown
