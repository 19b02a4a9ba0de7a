"""A test waits for a condition (`tests/eventually.py`), never for a time."""

import ast

from style.tree import name_of, parsed, python_files

# File -> why it may sleep.
ALLOWED: dict[str, str] = {
    "tests/crash/loop/campaign.py": "kills at random moments: the pause between two of them is one",
    "tests/eventually.py": "the one place that polls",
    "tests/integration/api/test_connections.py": "shows that nothing happens for several times a deadline",
    "tests/integration/api/test_stream.py": "a client that reads slowly: the pause is what it is",
    "tests/integration/loop/own/acme_tools.py": "tools of a user that take their time, until the test lets them end",
}


def sleeps(tree: ast.AST) -> list[int]:
    """The lines that sleep. `sleep(0)` only lets others run, and is allowed."""
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id) == "sleep"
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    )


def test_no_test_sleeps_where_a_condition_can_be_awaited() -> None:
    found = {name_of(path): sleeps(parsed(path)) for path in python_files("tests/")}
    assert {name: lines for name, lines in found.items() if lines and name not in ALLOWED} == {}


def test_the_list_of_sleepers_names_no_file_that_no_longer_sleeps() -> None:
    assert [name for name in ALLOWED if not sleeps(parsed(next(p for p in python_files() if name_of(p) == name)))] == []


def test_a_sleep_is_found_and_a_checkpoint_is_not() -> None:
    source = "await anyio.sleep(0.1)\ntime.sleep(x)\nawait sleep(0)\nawait anyio.sleep_forever()"
    assert sleeps(ast.parse(source)) == [1, 2]
