"""Every promise in SPECIFICATION.md names the test that holds it, and that test exists; or it says `pending`."""

import ast
import re
from typing import NamedTuple

import pytest

from style.tree import ROOT, parsed

ROW = re.compile(r"^\| (P-\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/.-]+\.py)::([\w:]+)`")


class Promise(NamedTuple):
    number: str
    text: str
    held_by: str


def promises() -> list[Promise]:
    return [Promise(*row) for row in ROW.findall((ROOT / "SPECIFICATION.md").read_text())]


def _is_defined(tree: ast.AST, names: list[str]) -> bool:
    """Whether `Class::test_name` (or `test_name`) is defined there."""
    *outer, last = names
    scopes: list[ast.AST] = [tree]
    for name in outer:
        scopes = [
            node
            for scope in scopes
            for node in ast.iter_child_nodes(scope)
            if isinstance(node, ast.ClassDef) and node.name == name
        ]
    return any(last in _names(node) for scope in scopes for node in ast.iter_child_nodes(scope))


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):  # TestX = SomeStateMachine.TestCase
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.number)
def test_a_promise_names_a_test_that_exists(promise: Promise) -> None:
    tests = TEST.findall(promise.held_by)
    if not tests:
        assert "pending" in promise.held_by, "name the test as `file::name`, or say pending"
    for file, name in tests:
        assert (ROOT / file).is_file(), f"there is no file {file}"
        assert _is_defined(parsed(ROOT / file), name.split("::")), f"{file} has no {name}"


def test_promises_are_numbered_without_a_gap() -> None:
    numbers = [promise.number for promise in promises()]
    assert numbers
    assert numbers == [f"P-{number:02}" for number in range(1, len(numbers) + 1)]
