"""What stands below a page."""

from pager.pages import page_count


def page_label(number: int, entries: int, size: int) -> str:
    return f"page {number} of {max(1, page_count(entries, size))}"
