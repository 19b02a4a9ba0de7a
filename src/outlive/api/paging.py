"""Pages of a list that is at hand as a whole: short by nature, or put together from several places. Pure.

The cursor is the key of the last item of the page before. Whoever follows `next` is shown each item that was there all
the while once, whatever comes and goes meanwhile.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from outlive.base import InvalidError


class Key(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...


T = TypeVar("T")
K = TypeVar("K", bound=Key)


def page_of(
    found: Iterable[T], key: Callable[[T], K], *, after: K | None, limit: int | None, descending: bool = False
) -> tuple[Sequence[T], K | None]:
    """At most `limit` items behind `after`, in the order of their keys, and the `next` cursor if more follow them."""
    ordered = sorted(found, key=key, reverse=descending)
    if after is not None:
        ordered = [each for each in ordered if (key(each) < after if descending else after < key(each))]
    page = ordered[:limit]
    return page, key(page[-1]) if len(page) < len(ordered) else None


def no_cursor() -> InvalidError:
    return InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
