"""No pattern has a possessive or atomic group: Python 3.11.2, which Debian 12 has, keeps half of what such a group
failed to match, so that what should be refused is taken. A possessive set of characters (`[a-z]*+`) is right there too.
"""

import ast
from re import _constants as kinds
from re import _parser as parser
from typing import Any

from style.tree import name_of, parsed, python_files

_ONE_CHARACTER = {kinds.LITERAL, kinds.NOT_LITERAL, kinds.IN, kinds.ANY}


def greedy_groups(tree: ast.AST) -> list[int]:
    """The lines of `re.compile` with a pattern that has one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "compile"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str | bytes)
        and _has_one(parser.parse(node.args[0].value))
    ]


def _has_one(parsed_pattern: Any) -> bool:
    for kind, given in parsed_pattern:
        if kind is kinds.ATOMIC_GROUP:
            return True
        if kind is kinds.POSSESSIVE_REPEAT and [each[0] for each in given[2]][1:] + [
            each[0] for each in given[2] if each[0] not in _ONE_CHARACTER
        ]:
            return True
        if any(_has_one(part) for part in _parts(given)):
            return True
    return False


def _parts(given: Any) -> list[Any]:
    """The patterns inside of one."""
    if isinstance(given, parser.SubPattern):
        return [given]
    if isinstance(given, list | tuple):
        return [part for each in given for part in _parts(each)]
    return []


def test_no_pattern_has_a_possessive_or_atomic_group() -> None:
    found = {name_of(path): greedy_groups(parsed(path)) for path in python_files("src/")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_possessive_group_is_found_however_deep_and_a_possessive_set_is_not() -> None:
    source = "\n".join(
        [
            r'a = re.compile(rb"(?:ab|[cd])*+")',
            r'b = re.compile(r"x(?:y(?>z))")',
            r'c = re.compile(r"[a-z]*+x?+\d{2,3}+")',
            r'd = re.compile(r"(?:a|(?:bc)++)+")',
            r'e = re.compile(r"(?:a|bc)+")',
        ]
    )
    assert greedy_groups(ast.parse(source)) == [1, 2, 4]
