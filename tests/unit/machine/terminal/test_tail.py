"""The newest output in memory: what is read is what was appended, wherever one stands, and what nobody needs goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.node.terminals.tail import Tail

PIECES = st.lists(st.one_of(st.binary(min_size=1, max_size=9), st.binary(min_size=3_000, max_size=9_000)), max_size=20)


@given(PIECES, st.integers(0, 1 << 40), st.integers(1, 20_000))
def test_reading_on_from_anywhere_gives_all_of_it_in_order(pieces: list[bytes], start: int, limit: int) -> None:
    tail, whole = Tail(start), b"".join(pieces)
    for piece in pieces:
        tail.append(piece)
    assert (tail.start, tail.end) == (start, start + len(whole))
    for begin in {0, len(whole) // 3, len(whole)}:
        position, found = start + begin, b""
        while position < tail.end:
            data = tail.read(position, limit)
            assert 0 < len(data) <= limit
            found, position = found + data, position + len(data)
        assert found == whole[begin:]


@given(PIECES, st.integers(0, 100_000))
def test_what_is_let_go_is_before_what_is_needed_and_little_of_that_stays(pieces: list[bytes], needed: int) -> None:
    tail, whole = Tail(0), b"".join(pieces)
    for piece in pieces:
        tail.append(piece)
    needed = min(needed, len(whole))
    tail.trim(needed)
    assert tail.start <= needed
    assert needed - tail.start < 13_000, "at most a part of one piece"
    assert tail.read(needed, len(whole) + 1) == whole[needed:]
    tail.trim(tail.end)
    assert tail.start == tail.end


def test_after_a_jump_nothing_is_held_of_what_was_before() -> None:
    tail = Tail(0)
    tail.append(b"before")
    tail.jump(100)
    tail.append(b"after")
    assert (tail.start, tail.read(100, 10)) == (100, b"after")
    for outside in (3, 99, 106):
        with pytest.raises(ValueError, match="not held"):
            tail.read(outside, 1)
