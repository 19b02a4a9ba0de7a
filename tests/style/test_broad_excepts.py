"""Nobody catches everything, except where a reason is written down here."""

import ast
from pathlib import Path

import pytest

from style.tree import name_of, parsed, python_files

# File -> why it has to catch whatever comes. Supervisors and the outermost frame of a process are the usual reasons.
ALLOWED: dict[str, str] = {
    "src/outlive/guest/loop.py": "PID 1 of a machine: its end would be the end of all that runs there",
    "src/outlive/loop/tools/own/running.py": "tools are others' code: whatever one raises is told, and ends one call",
    "src/outlive/machine/backends/screens/sturdy.py": "engines are others' code, fed with whatever is printed",
    "src/outlive/machine/node/terminals/contained.py": "the supervisor of terminals: one must not end a whole node",
    "src/outlive/toolkit/loading.py": "imports modules of others, which may fail with whatever they like",
}

BROAD = {"Exception", "BaseException"}


def _names(node: ast.expr | None) -> set[str]:
    match node:
        case None:
            return {"BaseException"}  # a bare `except:`
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.Tuple(elts=elements):
            return {name for element in elements for name in _names(element)}
        case _:
            return set()


def _ends_in_raise(body: list[ast.stmt]) -> bool:
    """Cleaning up and passing the same thing on is not catching it."""
    return isinstance(body[-1], ast.Raise) and body[-1].exc is None


def broad_catches(tree: ast.AST) -> list[int]:
    """The lines where everything is caught and kept."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught, body=body) if _names(caught) & BROAD and not _ends_in_raise(body):
                lines.append(node.lineno)
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
                if any(_names(arg) & BROAD for arg in args):
                    lines.append(node.lineno)
            case _:
                pass
    return lines


def _files() -> list[Path]:
    return [path for path in python_files("src/", "bench/", "scripts/") if broad_catches(parsed(path))]


def test_everything_is_caught_only_where_a_reason_is_given() -> None:
    found = {name_of(path): broad_catches(parsed(path)) for path in _files()}
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}


def test_the_list_of_reasons_names_no_file_that_no_longer_needs_one() -> None:
    assert set(ALLOWED) - {name_of(path) for path in _files()} == set()


@pytest.mark.parametrize(
    ("source", "is_broad"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept (ValueError, Exception) as e: print(e)", True),
        ("try: f()\nexcept: pass", True),
        ("with contextlib.suppress(Exception): f()", True),
        ("try: f()\nexcept BaseException:\n    g()\n    raise", False),
        ("try: f()\nexcept ValueError: pass", False),
    ],
)
def test_a_broad_catch_is_told_from_a_narrow_one(source: str, is_broad: bool) -> None:
    assert bool(broad_catches(ast.parse(source))) is is_broad
