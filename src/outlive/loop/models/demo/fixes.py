"""Small changes to a Python function, one of which may be what its test wants: the likeliest first. Pure.

The source is only read, never run: whether a change is right, the tests say, in the machine.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlive.loop.models.demo.failures import Direction

FIXES_LIMIT = 12

_Tends = Literal["more", "less", "other"]


@dataclass(frozen=True, slots=True)
class Fix:
    """`source` is the whole file with it; `was` and `becomes` are the line before and after."""

    source: str
    line: int
    was: str
    becomes: str
    why: str


class _Change(NamedTuple):
    rank: int  # the likeliest is 0
    tends: _Tends
    start: int  # in bytes of the file
    end: int
    text: str
    why: str


def find_fixes(source: str, functions: Collection[str], direction: Direction | None) -> tuple[Fix, ...]:
    """Changes in `functions` (and in those of the same file that they call). `direction`: what the test wants of the
    result. Empty for what is no Python, or has none of them."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    file = _File(source)
    changes = [change for function in _reached(tree, functions) for change in _changes(file, function)]
    changes.sort(key=lambda change: (direction is not None and change.tends not in (direction, "other"), change.rank))
    fixes: dict[str, Fix] = {}
    for change in changes:
        fix = file.fix(change)
        if fix.source != source:
            fixes.setdefault(fix.source, fix)
    return tuple(fixes.values())[:FIXES_LIMIT]


def _reached(tree: ast.Module, functions: Collection[str]) -> list[ast.FunctionDef]:
    """In the order in which they are called, those that were named first."""
    defined = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    waiting = [name for name in functions if name in defined]
    found: dict[str, ast.FunctionDef] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = defined[name]
            calls = (node for node in ast.walk(defined[name]) if isinstance(node, ast.Call))
            waiting += [called for call in calls if (called := _name_of(call.func)) in defined]
    return list(found.values())


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


class _File:
    """The text of a file by the places that `ast` counts in: lines, and bytes within them."""

    def __init__(self, source: str) -> None:
        self._source = source.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr) -> str:
        return self._source[self.start(node) : self.end(node)].decode()

    def find(self, symbol: str, after: ast.expr, before: ast.expr) -> tuple[int, int] | None:
        """Where an operator stands between its two sides."""
        at = self._source.find(symbol.encode(), self.end(after), self.start(before))
        return None if at < 0 else (at, at + len(symbol))

    def fix(self, change: _Change) -> Fix:
        becomes = self._source[: change.start] + change.text.encode() + self._source[change.end :]
        line = self._source.count(b"\n", 0, change.start)
        return Fix(
            source=becomes.decode(),
            line=line + 1,
            was=self._source.split(b"\n")[line].decode().strip(),
            becomes=becomes.split(b"\n")[line].decode().strip(),
            why=change.why,
        )


# ── what may be wrong ──


def _changes(file: _File, function: ast.FunctionDef) -> Iterator[_Change]:
    for statement in function.body:
        for node in ast.walk(statement):
            match node:
                case ast.BinOp(op=ast.FloorDiv()):
                    yield _round_up(file, node)
                case ast.BinOp(op=ast.Add() | ast.Sub()):
                    yield from _other_sign(file, node)
                case ast.Compare(ops=[_], comparators=[_]):
                    yield from _other_comparison(file, node)
                case ast.Call(func=ast.Name(id="range"), args=[*_, _]):
                    yield from _other_end(file, node)
                case ast.Call(func=ast.Name(id="min" | "max")):
                    yield _other_bound(file, node)
                case ast.Constant(value=int(value)) if not isinstance(value, bool):
                    yield from _other_number(file, node, value)


def _round_up(file: _File, node: ast.BinOp) -> _Change:
    left, right = (_grouped(file, side) for side in (node.left, node.right))
    why = f"`{file.text(node)}` rounds down, so what is left over is not counted; it has to round up"
    return _Change(0, "more", file.start(node), file.end(node), f"-(-{left} // {right})", why)


def _grouped(file: _File, node: ast.expr) -> str:
    is_simple = isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript)
    return file.text(node) if is_simple else f"({file.text(node)})"


def _other_end(file: _File, node: ast.Call) -> Iterator[_Change]:
    stop = node.args[min(1, len(node.args) - 1)]
    text, end = file.text(stop), file.end(stop)
    yield _Change(1, "more", file.start(stop), end, f"{text} + 1", f"`{file.text(node)}` stops one too early")
    yield _Change(1, "less", file.start(stop), end, f"{text} - 1", f"`{file.text(node)}` stops one too late")


_COMPARISONS: dict[type[ast.cmpop], tuple[str, str, _Tends]] = {
    ast.Lt: ("<", "<=", "more"),
    ast.Gt: (">", ">=", "more"),
    ast.LtE: ("<=", "<", "less"),
    ast.GtE: (">=", ">", "less"),
    ast.Eq: ("==", "!=", "other"),
    ast.NotEq: ("!=", "==", "other"),
}


def _other_comparison(file: _File, node: ast.Compare) -> Iterator[_Change]:
    known = _COMPARISONS.get(type(node.ops[0]))
    if known is not None:
        symbol, other, tends = known
        place = file.find(symbol, node.left, node.comparators[0])
        if place is not None:
            why = f"`{file.text(node)}` may be wrong just at its limit"
            yield _Change(2, tends, *place, other, why)


def _other_bound(file: _File, node: ast.Call) -> _Change:
    is_min = file.text(node.func) == "min"
    tends: _Tends = "more" if is_min else "less"
    why = f"`{file.text(node)}` may take the wrong one of the two"
    return _Change(3, tends, file.start(node.func), file.end(node.func), "max" if is_min else "min", why)


def _other_sign(file: _File, node: ast.BinOp) -> Iterator[_Change]:
    is_sum = isinstance(node.op, ast.Add)
    place = file.find("+" if is_sum else "-", node.left, node.right)
    if place is not None:
        tends: _Tends = "less" if is_sum else "more"
        yield _Change(4, tends, *place, "-" if is_sum else "+", f"`{file.text(node)}` may have the wrong sign")


def _other_number(file: _File, node: ast.Constant, value: int) -> Iterator[_Change]:
    why = f"`{value}` may be off by one"
    yield _Change(5, "more", file.start(node), file.end(node), str(value + 1), why)
    yield _Change(5, "less", file.start(node), file.end(node), str(value - 1), why)


# ── as an edit ──


def edit_between(before: str, after: str) -> tuple[str, str]:
    """What to replace in `before`, and by what, to get `after`: the lines that differ, and so many around them that
    it is the only place."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    while (first, last) != (0, 0) and not _is_only(before, "".join(old[first : len(old) - last])):
        first, last = (first - 1, last) if first else (0, last - 1)
    was, becomes = "".join(old[first : len(old) - last]), "".join(new[first : len(new) - last])
    # The line end that both have need not be replaced.
    is_cut = was.endswith("\n") and becomes.endswith("\n") and _is_only(before, was[:-1])
    return (was[:-1], becomes[:-1]) if is_cut else (was, becomes)


def _is_only(text: str, piece: str) -> bool:
    """Whether it is there at one place; places may overlap."""
    return text.find(piece) == text.rfind(piece)
