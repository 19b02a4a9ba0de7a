"""Pages of a list that is at hand as a whole."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.api.paging import page_of

KEYS = st.sets(st.integers(1, 30))


def _key(item: str) -> int:
    return int(item)


@given(there=KEYS, limit=st.integers(1, 8), descending=st.booleans(), comes=st.lists(KEYS), goes=st.lists(KEYS))
def test_whoever_follows_next_sees_once_what_was_there_all_the_while(
    there: set[int], limit: int, descending: bool, comes: list[set[int]], goes: list[set[int]]
) -> None:
    now, stayed = set(there), set(there)
    seen: list[int] = []
    after: int | None = None
    while True:
        page, after = page_of(map(str, now), _key, after=after, limit=limit, descending=descending)
        assert len(page) <= limit
        seen += map(int, page)
        if after is None:
            break
        now |= comes.pop() if comes else set()
        now -= goes.pop() if goes else set()
        stayed &= now
    assert seen == sorted(set(seen), reverse=descending)
    assert stayed <= set(seen)


@given(KEYS)
def test_without_a_limit_a_page_is_all_of_it(there: set[int]) -> None:
    assert page_of(there, lambda each: each, after=None, limit=None) == (sorted(there), None)
