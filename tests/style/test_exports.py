"""A package says what it offers: a literal, sorted `__all__` that is true. A module says what lives in it."""

import ast
import importlib
from pathlib import Path

from style.tree import PACKAGE, name_of, parsed, python_files

SHORTEST_DOCSTRING = 20


def _exports(tree: ast.Module) -> list[str] | None:
    """The names of `__all__`, if it is there as a literal."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as value):
                return [str(name) for name in ast.literal_eval(value)]
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List() | ast.Tuple() as value):
                return [str(name) for name in ast.literal_eval(value)]
            case _:
                pass
    return None


def _imported(tree: ast.Module) -> set[str]:
    """The public names that a package takes from its own modules."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outlive")
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }


def _order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that ruff sorts to."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def _wrong_with(init: Path) -> list[str]:
    tree = parsed(init)
    exports = _exports(tree)
    if exports is None:
        return [] if len(tree.body) == 1 else ["holds more than a docstring, and has no literal __all__"]
    wrong = []
    if exports != sorted(set(exports), key=_order):
        wrong.append("__all__ is not sorted")
    package = importlib.import_module(".".join(("outlive", *init.parent.relative_to(PACKAGE).parts)))
    wrong += [f"{name} is not there" for name in exports if not hasattr(package, name)]
    wrong += [f"{name} is not in __all__" for name in sorted(_imported(tree) - set(exports))]
    return wrong


def test_every_package_says_what_it_exports() -> None:
    inits = [path for path in python_files("src/outlive/") if path.name == "__init__.py"]
    assert inits
    assert {name_of(path): wrong for path in inits if (wrong := _wrong_with(path))} == {}


def test_every_module_says_what_lives_in_it() -> None:
    docstrings = {name_of(path): ast.get_docstring(parsed(path)) or "" for path in python_files("src/outlive/")}
    assert {name: said for name, said in docstrings.items() if len(said) < SHORTEST_DOCSTRING} == {}
