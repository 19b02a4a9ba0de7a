"""Changes that may be what a test wants are found in the source, and the likeliest come first."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.loop.models.demo.failures import Direction
from outlive.loop.models.demo.fixes import FIXES_LIMIT, edit_between, find_fixes

PAGES = '''"""Überschrift: bytes are not characters."""


def page_count(entries: int, size: int) -> int:
    if size < 1:
        raise ValueError
    return entries // size


def label(entries: int, size: int) -> str:
    return f"of {page_count(entries, size)}"
'''


def test_a_rounded_division_is_the_first_thing_to_suspect_where_more_is_wanted() -> None:
    fix, *_ = find_fixes(PAGES, ["page_count"], "more")
    assert (fix.line, fix.was, fix.becomes) == (7, "return entries // size", "return -(-entries // size)")
    assert fix.source == PAGES.replace("entries // size", "-(-entries // size)")


def test_what_a_function_calls_in_its_file_is_suspected_too() -> None:
    assert find_fixes(PAGES, ["label"], "more")[0] == find_fixes(PAGES, ["page_count"], "more")[0]


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [
        ("return list(range(1, n))", "return list(range(1, n + 1))", "more"),
        ("return list(range(n))", "return list(range(n - 1))", "less"),
        ("return [x for x in y if x < n]", "return [x for x in y if x <= n]", "more"),
        ("return [x for x in y if x >= n]", "return [x for x in y if x > n]", "less"),
        ("return min(n, y)", "return max(n, y)", "more"),
        ("return n - y", "return n + y", "more"),
        ("return (n + y) // 2", "return -(-(n + y) // 2)", "more"),
        ("return n[1]", "return n[0]", "less"),
        ("return n == 4", "return n != 4", None),
    ],
)
def test_each_kind_of_slip_is_among_the_changes(before: str, after: str, direction: Direction | None) -> None:
    source = f"def f(n, y):\n    {before}\n"
    fixes = find_fixes(source, ["f"], direction)
    assert fixes[0].becomes == after
    assert f"def f(n, y):\n    {after}\n" == fixes[0].source


@pytest.mark.parametrize("source", ["", "def f(:", "\0", "def g():\n    return 1 // 2\n"])
def test_what_cannot_be_read_or_is_not_there_has_no_changes(source: str) -> None:
    assert find_fixes(source, ["f"], None) == ()


def test_changes_are_few_differ_and_can_be_read() -> None:
    source = "def f(a):\n" + "".join(f"    a = a + {n} - a // {n}\n" for n in range(1, 20)) + "    return a\n"
    fixes = find_fixes(source, ["f"], "less")
    assert len({fix.source for fix in fixes}) == len(fixes) == FIXES_LIMIT
    for fix in fixes:
        ast.parse(fix.source)


_FILES = st.lists(st.sampled_from(["a\n", "b\n", "  a\n", "\n", "c"]), max_size=8).map("".join)


@given(_FILES, _FILES)
def test_an_edit_is_at_one_place_only_and_gives_the_other_file(before: str, after: str) -> None:
    if before == after or not before:
        return
    old, new = edit_between(before, after)
    assert before.count(old) == 1
    assert before.replace(old, new, 1) == after
