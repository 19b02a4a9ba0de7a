"""Every kind of error has its row in every table, and every error of ours has a kind."""

import importlib
import pkgutil
from collections.abc import Mapping

import pytest

import outlive
from outlive.api.errors import STATUS, TITLES
from outlive.base import KINDS, OutliveError
from outlive.cli.exit import EXIT_CODES


@pytest.mark.parametrize("table", [STATUS, TITLES, EXIT_CODES], ids=["status", "title", "exit code"])
def test_a_table_has_a_row_for_every_kind_and_no_other(table: Mapping[str, object]) -> None:
    assert set(table) == set(KINDS)


def _exceptions_of_ours() -> set[type[BaseException]]:
    """Every exception class that a module of the package defines."""
    for module in pkgutil.walk_packages(outlive.__path__, "outlive."):
        if module.name != "outlive.__main__":  # it runs the command
            importlib.import_module(module.name)
    found: set[type[BaseException]] = set()
    waiting: list[type[BaseException]] = [BaseException]
    while waiting:
        error = waiting.pop()
        if error not in found:
            found.add(error)
            waiting.extend(error.__subclasses__())
    return {error for error in found if error.__module__.startswith("outlive.")}


def test_every_error_of_ours_has_one_of_the_kinds() -> None:
    errors = {error for error in _exceptions_of_ours() if issubclass(error, OutliveError)}
    # What others derive from, and is never raised itself, need not have one.
    raised = [error for error in errors if not error.__subclasses__()]
    assert {error.kind for error in raised} == set(KINDS)


def test_no_module_defines_a_root_of_its_own() -> None:
    """Outside of `base/errors.py` an exception derives from a kind, or is private to its module.

    The guest runs in a machine and knows nothing of the tree: its errors are words on the wire, or a broken wire.
    """
    errors = {error for error in _exceptions_of_ours() if not error.__module__.startswith("outlive.guest.")}
    assert [e for e in errors if not issubclass(e, OutliveError) and not e.__name__.startswith("_")] == []
