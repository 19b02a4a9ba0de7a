"""Long lists in pages."""

from pager.labels import page_label
from pager.pages import page, page_count

__all__ = ["page", "page_count", "page_label"]
