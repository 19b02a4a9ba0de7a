"""Cutting a list into pages."""

from collections.abc import Sequence


def page_count(entries: int, size: int) -> int:
    """How many pages it takes to show all entries."""
    if size < 1:
        raise ValueError("a page has room for at least one entry")
    return entries // size


def page(entries: Sequence[str], number: int, size: int) -> list[str]:
    """The entries of one page. Pages are counted from 1."""
    if number < 1:
        raise ValueError("pages are counted from 1")
    first = (number - 1) * size
    return list(entries[first : first + size])
