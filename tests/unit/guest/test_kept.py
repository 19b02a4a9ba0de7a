"""Bytes with offsets: what is kept is exactly what was appended and not let go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.guest.kept import Kept, Ring


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 200)), max_size=30))
def test_what_is_kept_has_the_offsets_it_was_born_with(steps: list[tuple[bytes, int]]) -> None:
    kept, whole, start = Kept(), b"", 0
    for data, offset in steps:
        kept.append(data)
        whole += data
        dropped = kept.let_go(offset)
        assert dropped == max(0, min(offset, len(whole)) - start)
        start += dropped
        assert (kept.start, kept.end, len(kept)) == (start, len(whole), len(whole) - start)
        assert kept.read(start, len(whole)) == whole[start:]


@given(st.lists(st.binary(max_size=30), max_size=30))
def test_a_ring_holds_the_newest_bytes(parts: list[bytes]) -> None:
    ring, whole = Ring(16), b""
    for data in parts:
        ring.append(data)
        whole += data
        assert ring.end == len(whole)
        assert ring.read(ring.start, 100) == whole[-16:]


def test_what_was_let_go_is_not_given() -> None:
    ring = Ring(4)
    ring.append(b"abcdef")
    with pytest.raises(ValueError, match="no longer kept"):
        ring.read(1, 1)


_STEPS = st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 400)), max_size=40)


@given(_STEPS)
def test_a_ring_with_a_recorder_drops_nothing_that_was_not_acknowledged(steps: list[tuple[bytes, int]]) -> None:
    ring, whole, acknowledged = Ring(16), b"", 0
    ring.record_from(0)
    for data, offset in steps:
        taken = data[: ring.room]
        ring.append(taken)
        whole += taken
        assert ring.start <= acknowledged
        assert len(ring) <= 16
        assert ring.read(ring.start, 100) == whole[ring.start :]
        ring.acknowledge(offset)
        if offset <= len(whole):
            acknowledged = max(acknowledged, offset)


def test_a_ring_full_of_what_nobody_acknowledged_has_no_room_until_somebody_does() -> None:
    ring = Ring(4)
    ring.record_from(0)
    ring.append(b"abcd")
    assert ring.room == 0
    ring.acknowledge(5)  # of what was never printed
    assert ring.room == 0
    ring.acknowledge(3)
    assert ring.room == 3
    ring.append(b"efg")
    assert ring.read(3, 10) == b"defg"
    ring.record_no_more()
    assert ring.room == 4
