"""What a run of the tests says is read from its words."""

import pytest

from outlive.loop.models.demo.failures import count_tests, has_passed, read_failure

RULE = "=" * 70
LINE = "-" * 70
COMPARED = f"""..F
{RULE}
FAIL: test_rest (tests.test_pages.PageCount.test_rest)
Some words of the test's own
{LINE}
Traceback (most recent call last):
  File "/workspace/tests/test_pages.py", line 13, in test_rest
    self.assertEqual(page_count(10, len(x)), 4)
AssertionError: 3 != 4

{LINE}
Ran 3 tests in 0.009s

FAILED (failures=1)
[exit code 1]"""
BROKE = f"""{RULE}
ERROR: test_mean (test_stats.Mean.test_mean)
{LINE}
Traceback (most recent call last):
  File "/workspace/test_stats.py", line 5, in test_mean
    self.assertEqual(mean([]), 0)
                     ^^^^^^^^
  File "/workspace/stats.py", line 2, in mean
    return total(x) / len(x)
           ~~~~~~~~~^~~~~~~~
  File "/usr/lib/python3.11/somewhere.py", line 2, in inner
    raise it
ZeroDivisionError: division by zero

{RULE}
FAIL: test_other (test_stats.Mean.test_other)
{LINE}
Ran 2 tests in 0.1s

FAILED (failures=1, errors=1)"""


def test_values_that_differ_are_read_with_what_was_called() -> None:
    failure = read_failure(COMPARED)
    assert failure is not None
    assert (failure.test, failure.file) == ("test_rest", "tests/test_pages.py")
    assert (failure.called, failure.source) == (("page_count",), None)
    assert (failure.got, failure.wanted, failure.direction) == ("3", "4", "more")


def test_the_first_error_is_read_with_the_file_that_it_is_in() -> None:
    failure = read_failure(BROKE)
    assert failure is not None
    assert (failure.test, failure.file, failure.source) == ("test_mean", "test_stats.py", "stats.py")
    assert failure.called == ("mean",)
    assert (failure.message, failure.direction) == ("ZeroDivisionError: division by zero", None)


@pytest.mark.parametrize(
    ("message", "direction"),
    [
        ("AssertionError: Lists differ: [1, 2] != [1, 2, 3]", "more"),
        ("AssertionError: 'abcd' != 'abc'", "less"),
        ("AssertionError: 2.5 != 1 : with words", "less"),
        ("AssertionError: [1] != [2]", None),
        ("AssertionError: <object> != 4", None),
        ("AssertionError: False is not true", None),
    ],
)
def test_whether_more_or_less_is_wanted_is_read_where_it_can_be(message: str, direction: str | None) -> None:
    failure = read_failure(COMPARED.replace("AssertionError: 3 != 4", message))
    assert failure is not None
    assert failure.direction == direction


def test_only_a_run_of_tests_that_says_so_has_passed() -> None:
    passed = "...\nRan 3 tests in 0.1s\n\nOK (skipped=1)\n"
    assert has_passed(passed)
    assert count_tests(passed) == 3
    for other in (COMPARED, BROKE, "", "OK", "Ran 0 tests in 0.0s\n\nOK\n", "python3: not found\n[exit code 127]"):
        assert not has_passed(other)
    for unreadable in (passed, "", "FAIL: test_x\nnothing more"):
        assert read_failure(unreadable) is None
