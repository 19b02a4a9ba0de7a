"""Documents hold together: links lead somewhere, decision records are whole, and each is in its index."""

import re
from pathlib import Path

import pytest

from style.tree import ROOT, markdown_files, name_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PARTS_OF_A_DECISION = ["Context", "Decision", "Rejected", "Consequences"]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def _anchors(path: Path) -> set[str]:
    """What a link can name in a page: its headings as GitHub spells them."""
    headings = HEADING.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken_links(path: Path) -> list[str]:
    broken = []
    for link in LINK.findall(CODE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        page = (path.parent / target).resolve() if target else path
        is_broken = not page.exists() or (anchor and page.suffix == ".md" and anchor not in _anchors(page))
        if is_broken or not page.is_relative_to(ROOT):
            broken.append(link)
    return broken


def test_links_within_the_repository_lead_somewhere() -> None:
    assert {name_of(path): broken for path in markdown_files() if (broken := _broken_links(path))} == {}


@pytest.mark.parametrize("path", DECISIONS, ids=name_of)
def test_a_decision_says_what_was_rejected_and_what_follows(path: Path) -> None:
    sections = re.split(r"^## (.+)$", path.read_text(), flags=re.MULTILINE)
    assert sections[1::2] == PARTS_OF_A_DECISION
    assert all(text.strip() for text in sections[2::2])


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [path.name[:4] for path in DECISIONS] == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]


def test_the_index_of_documents_names_every_document() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    pages = {path for path in markdown_files() if path.is_relative_to(index.parent) and path != index}
    assert pages - linked == set()
