"""A shell that is operated through its terminal: what its marks say, and nothing else, decides."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import ConflictError, EffectId, InvalidError, TerminalId, new_machine_id
from outlive.machine.status import Effect
from outlive.machine.terminal.journal import Input
from outlive.machine.terminal.marks import Marks
from outlive.machine.terminal.shell import Course, Shell, decide_line, digest_of_run, keys_of, read_shell, terminal_of
from unit.machine.terminal.journals import typed

EFFECT = EffectId("eff_1")


def prompt(name: str, exit_code: int = 0) -> bytes:
    return b"\x1b]133;D;%d;id=%s\x07\x1b]133;A;id=%s\x07$ \x1b]133;B;id=%s\x07" % (exit_code, *3 * (name.encode(),))


STARTED = b"\x1b]633;E;ls\x07\x1b]133;C\x07"
PASTES = b"\x1b[?2004h"
BEGINS, SHOWN = prompt("1.2.7").index(b"\x1b]133;A"), len(prompt("1.2.7"))
FRESH = Shell("prompt", "1.2.7", BEGINS, SHOWN, is_untouched=True)


def course_of(output: bytes, *, typed_at: int = 0, at: str = "1.2.7") -> Course:
    course = Course(EFFECT, at, typed_at)
    course.take(Marks().feed(typed_at, output))
    return course


def effect_with(digest: str) -> Effect:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Effect(
        machine=new_machine_id(), id=EFFECT, n=1, digest=digest, generation=1, state="started", started_at=now
    )


# ── may it be typed to ──


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"", Shell()),
        (b"some program", Shell()),
        (b"\x1b]133;A;id=1.2.7\x07$ ", Shell()),
        (prompt("1.2.7"), FRESH),
        (PASTES + prompt("1.2.7"), FRESH._replace(prompt_at=8 + BEGINS, ready_at=8 + SHOWN, takes_paste=True)),
        (prompt("1.2.7") + b"\x1b[K", FRESH),
        (prompt("1.2.7") + b"rm -rf", FRESH._replace(is_untouched=False)),
        (prompt("1.2.7") + b"\r" + prompt("1.2.7"), FRESH._replace(ready_at=1 + 2 * SHOWN)),  # drawn again
        (
            prompt("1.2.7") + prompt("1.2.8"),
            FRESH._replace(prompt="1.2.8", prompt_at=SHOWN + BEGINS, ready_at=2 * SHOWN),
        ),
        (prompt("1.2.7") + b"ls\r\n" + STARTED, FRESH._replace(phase="running", is_untouched=False)),
    ],
)
def test_what_a_shell_does_is_read_from_its_newest_marks(output: bytes, expected: Shell) -> None:
    assert read_shell(0, output) == expected
    moved = read_shell(100, output)
    assert moved == expected._replace(prompt_at=expected.prompt_at + 100, ready_at=expected.ready_at + 100)


@given(st.binary(max_size=300))
def test_any_output_is_read(output: bytes) -> None:
    read_shell(5, output)


BEFORE, SINCE = BEGINS, SHOWN  # offsets at which something was typed


@pytest.mark.parametrize(
    ("last", "is_free"),
    [
        (typed(BEFORE, 0, b"ls\r"), True),
        (typed(BEFORE, 0, b"cat\n\x04"), True),
        (typed(BEFORE, 0, b"\x03"), True),
        (typed(BEFORE, 0, b"ls\rrm -rf"), False),  # typed ahead
        (typed(BEFORE, 0, b"\x1b"), False),  # it shows nothing
        (typed(SINCE, 0, b"if true\r"), False),  # entered, and the line goes on
        (typed(SINCE, 0, b"rm -rf"), False),
        (None, False),  # not known
    ],
)
def test_a_line_is_free_if_what_was_typed_last_ended_one_before_the_prompt(last: Input | None, is_free: bool) -> None:
    touched = FRESH._replace(is_untouched=False)
    assert decide_line(FRESH, last, is_waiting=True) == ("type" if is_free else "give_up")
    assert decide_line(touched, last, is_waiting=True) == "give_up"
    assert decide_line(touched, last, is_waiting=True, is_given_up=True) == ("type" if is_free else "give_up")


def test_nothing_is_decided_before_the_shell_has_read_all_and_waits_at_its_prompt() -> None:
    for shell in (FRESH, FRESH._replace(is_untouched=False)):
        assert decide_line(shell, typed(BEFORE, 0, b"ls\r"), is_waiting=False) == "wait"
    for phase in ("unknown", "running"):
        assert decide_line(Shell(phase), None, is_waiting=True, is_first=True) == "wait"


def test_the_first_line_of_a_shell_is_free_while_nothing_is_shown_there() -> None:
    assert decide_line(FRESH, None, is_waiting=True, is_first=True) == "type"
    assert decide_line(FRESH._replace(is_untouched=False), None, is_waiting=True, is_first=True) == "give_up"


# ── what is typed ──


def test_one_line_is_typed_and_several_are_pasted() -> None:
    assert keys_of("ls -l", Shell()) == b"ls -l\r"
    assert keys_of("ls\n", Shell()) == b"ls\r"
    assert keys_of("a\nb", Shell(takes_paste=True)) == b"\x1b[200~a\nb\x1b[201~\r"
    assert keys_of("a\tb", Shell(takes_paste=True)) == b"\x1b[200~a\tb\x1b[201~\r"
    with pytest.raises(ConflictError, match="one line"):
        keys_of("a\nb", Shell())


@pytest.mark.parametrize("command", ["a\x03b", "a\x1b[201~b", "a\rb", "a\x7fb", "\n", "  \n "])
def test_what_would_be_keys_and_no_text_is_refused(command: str) -> None:
    with pytest.raises(InvalidError):
        keys_of(command, Shell(takes_paste=True))


# ── what came of it ──


def test_a_command_is_over_at_the_next_prompt_of_its_shell() -> None:
    echo, output = b"ls\r\n" + STARTED, b"a file\r\n"
    course = course_of(echo + output + prompt("1.2.8", 3), typed_at=50)
    assert (course.phase, course.exit_code, course.is_accepted) == ("over", 3, True)
    assert (course.output_start, course.output_end) == (50 + len(echo), 50 + len(echo + output))


def test_a_prompt_that_is_drawn_again_ends_nothing() -> None:
    assert course_of(prompt("1.2.7", 1) + b"ls\r\n").phase == "typed"
    assert course_of(prompt("1.2.7", 1) + b"ls\r\n" + STARTED).phase == "running"


def test_lines_that_were_pasted_together_are_one_command() -> None:
    course = course_of(STARTED + b"1\r\n" + STARTED + b"2\r\n" + prompt("1.2.8", 4))
    assert (course.exit_code, course.output_start) == (4, len(STARTED))


def test_marks_of_another_shell_in_the_output_end_nothing() -> None:
    assert course_of(STARTED + prompt("9.9.1") + prompt("")).phase == "running"


def test_a_line_that_the_shell_does_not_accept_was_never_started() -> None:
    course = course_of(b"echo )\r\nbash: syntax error\r\n" + prompt("1.2.8", 2))
    assert (course.phase, course.exit_code, course.is_accepted) == ("over", 2, False)


def test_a_shell_that_does_not_number_its_prompts_any_more_still_ends_commands() -> None:
    assert course_of(STARTED + prompt("1.2.7", 5)).exit_code == 5


def test_what_was_printed_before_it_was_typed_does_not_count() -> None:
    course = Course(EFFECT, "1.2.7", 1000)
    course.take(Marks().feed(0, STARTED + prompt("1.2.8")))
    assert course.phase == "typed"


@given(st.binary(max_size=300))
def test_no_output_breaks_the_watching(output: bytes) -> None:
    course_of(output + STARTED + output + prompt("1.2.8"))


# ── its line in the journal of effects ──


def test_an_effect_says_which_terminal_it_was_typed_into() -> None:
    terminal = TerminalId("term_" + "1" * 32)
    digest = digest_of_run(terminal, "ls")
    assert terminal_of(effect_with(digest)) == terminal
    assert terminal_of(effect_with("ab" * 32)) is None
    assert digest != digest_of_run(terminal, "ls -l")
