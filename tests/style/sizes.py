"""How long files and functions are, and how long they may be."""

import ast
from typing import NamedTuple

from style.tree import name_of, parsed, python_files, text_of, tracked

SOFT_FILE_LINES, HARD_FILE_LINES = 400, 800
SOFT_FUNCTION_LINES, HARD_FUNCTION_LINES = 40, 80

CODE = ("src/", "tests/", "bench/", "scripts/")
NOT_WRITTEN_BY_HAND = ("tests/golden/", "bench/results/")


class Size(NamedTuple):
    name: str
    lines: int


def file_sizes() -> list[Size]:
    names = [(name_of(path), path) for path in tracked()]
    return [
        Size(name, len(text.splitlines()))
        for name, path in names
        if name.startswith(CODE) and not name.startswith(NOT_WRITTEN_BY_HAND) and (text := text_of(path)) is not None
    ]


def function_sizes() -> list[Size]:
    return [
        Size(f"{name_of(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path in python_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
