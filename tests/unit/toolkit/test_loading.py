"""Finding tools by the names that a person gives."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.base import InvalidError
from outlive.toolkit import load_tools

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(f"from outlive import tool\n{text}")

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


TWO = '@tool\ndef one() -> None:\n    "One."\n@tool\nasync def two() -> None:\n    "Two."\nBOTH = [two, one]\n'


def test_a_module_gives_all_its_tools_and_a_name_one_or_a_list(write: Write) -> None:
    write("of_two", TWO)
    write("passing_on", "from of_two import one")
    assert [each.name for each in load_tools(["of_two"])] == ["one", "two"]
    assert [each.name for each in load_tools(["of_two:two"])] == ["two"]
    assert [each.name for each in load_tools(["of_two:BOTH"])] == ["two", "one"]
    assert [each.name for each in load_tools(["passing_on", "of_two"])] == ["one", "two"]


def test_what_cannot_be_loaded_is_told_with_the_place(write: Write) -> None:
    write("empty", "x = 1")
    write("wrong", "import nowhere_at_all")
    write("odd", "def f(:")
    write("a_one", '@tool\ndef one() -> None:\n    "One."\n')
    write("b_one", '@tool\ndef one() -> None:\n    "Another."\n')
    for names, code, told in [
        (["empty"], "tools.none", "mark its functions with @tool"),
        (["empty:x"], "tools.none", "neither a tool"),
        (["empty:y"], "tools.none", "'y'"),
        (["nowhere_at_all"], "tools.import", "nowhere_at_all"),
        (["wrong"], "tools.import", "wrong.py, line 2"),
        (["odd"], "tools.import", "SyntaxError"),
        (["a_one", "b_one"], "tools.doubled", "a_one.one and b_one.one"),
    ]:
        with pytest.raises(InvalidError) as caught:
            load_tools(names)
        assert caught.value.code == code
        assert told in caught.value.message


def test_tools_carry_nothing_of_the_server(write: Write) -> None:
    import subprocess

    program = "import sys; from outlive import tool; print([m for m in sys.modules if m.startswith('outlive.')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "outlive.toolkit" in found
    assert not any(layer in found for layer in ("loop", "wiring", "storage", "client", "processes"))
