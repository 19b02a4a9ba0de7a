"""One word per idea (docs/reference/glossary.md), and no module that is named for nothing."""

import ast
import re
import tokenize
from pathlib import Path

from style.tree import PACKAGE, markdown_files, name_of, parsed, python_files

NAMES_FOR_NOTHING = {
    *("common", "core", "helper", "helpers", "manager", "managers", "misc"),
    *("service", "services", "util", "utils", "utilities"),
}
CLASS_FOR_NOTHING = re.compile(r"(Manager|Helper|Helpers|Util|Utils|Service)$")

# What must not be said -> what is said instead. Whole words, in any case unless capitals are the point.
BANNED = {
    r"\b(?:micro)?VMs?\b": "machine",
    r"\b(?i:virtual machines?)\b": "machine",
    r"\b(?i:dev)?(?i:box|boxes)\b": "machine",
    r"\b(?i:suspend(?:s|ed|ing)?)\b": "hibernate (or pause)",
    r"\b(?i:unsuspend(?:s|ed|ing)?)\b": "wake",
    r"\b(?i:shell sessions?)\b": "terminal",
    r"\b(?i:chat threads?|chat sessions?)\b": "conversation",
}
# The page that says which words are not used.
MAY_NAME_THEM = {"docs/reference/glossary.md"}


def banned_in(text: str) -> list[str]:
    return [
        f"line {number}: {found[0]!r}: say {instead!r}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in BANNED.items()
        for found in re.finditer(pattern, line)
    ]


def said_in(path: Path) -> str:
    """What a file says to people: a document whole, code by its comments and strings (names may be a library's)."""
    if path.suffix != ".py":
        return path.read_text()
    lines: dict[int, str] = {}
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                for number, line in enumerate(token.string.splitlines(), token.start[0]):
                    lines[number] = f"{lines.get(number, '')} {line}"
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))


def test_no_module_is_named_for_nothing() -> None:
    parts = {part.removesuffix(".py") for path in python_files("src/") for part in path.relative_to(PACKAGE).parts}
    assert parts & NAMES_FOR_NOTHING == set()


def test_no_class_is_named_for_nothing() -> None:
    named = [
        f"{name_of(path)}: {node.name}"
        for path in python_files("src/")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and CLASS_FOR_NOTHING.search(node.name)
    ]
    assert named == []


def test_documents_and_code_say_one_word_per_idea() -> None:
    texts = {name_of(path): banned_in(said_in(path)) for path in [*markdown_files(), *python_files("src/")]}
    assert {name: found for name, found in texts.items() if found and name not in MAY_NAME_THEM} == {}
    assert [name for name in MAY_NAME_THEM if not texts[name]] == []


def test_a_banned_word_is_found_and_a_longer_word_is_not() -> None:
    assert len(banned_in("The VM is suspended in its box")) == 3
    assert banned_in("The sandbox shows a checkbox; suspense") == []
