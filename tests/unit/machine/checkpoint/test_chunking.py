"""Where streams are cut: by content, whatever blocks they come in."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.checkpoint.chunking import (
    BLOCK,
    LARGEST_CHUNK,
    PAGE,
    SMALLEST_CHUNK,
    Cut,
    cut_by_content,
    cut_pages,
)
from outlive.testing.checkpoints import some_bytes


def chunks_of(cuts: Iterable[Cut]) -> list[bytes]:
    found = []
    for block, ends in cuts:
        starts = [0, *ends[:-1]]
        assert ends[-1] == len(block)
        found += [block[start:end] for start, end in zip(starts, ends, strict=True)]
    return found


contents = st.builds(
    lambda seed, length, zeros, repeats: (some_bytes(seed, length) + bytes(zeros)) * repeats,
    st.integers(0, 10),
    st.sampled_from([0, 1, 15, 16, 8191, 8192, 8193, 65_520, 65_536, 131_072, 300_000, 1_100_000]),
    st.sampled_from([0, 1, 9_000, 200_000]),
    st.integers(0, 3),
)


@given(content=contents, sizes=st.lists(st.integers(1, 2 * BLOCK), max_size=20))
def test_chunks_depend_on_the_content_and_not_on_the_blocks_it_comes_in(content: bytes, sizes: list[int]) -> None:
    blocks = []
    start = 0
    for size in sizes:
        blocks.append(content[start : start + size])
        start += size
    blocks.append(content[start:])
    chunks = chunks_of(cut_by_content(blocks))
    assert b"".join(chunks) == content
    assert chunks == chunks_of(cut_by_content([content]))
    assert all(SMALLEST_CHUNK <= len(chunk) <= LARGEST_CHUNK for chunk in chunks[:-1])
    assert all(0 < len(chunk) <= LARGEST_CHUNK for chunk in chunks[-1:])


def test_an_insertion_changes_only_the_chunks_around_it() -> None:
    content = some_bytes(1, 4_000_000)
    before = chunks_of(cut_by_content([content]))
    after = chunks_of(cut_by_content([content[:2_000_000] + b"inserted" + content[2_000_000:]]))
    assert 60 < len(before) < 200, "about 32 KiB each, and the smallest"
    assert len(set(after) - set(before)) <= 3


def test_memory_is_cut_into_pages_and_the_last_may_be_short() -> None:
    content = some_bytes(2, 10 * PAGE + 5)
    chunks = chunks_of(cut_pages([content[: 4 * PAGE], content[4 * PAGE :]]))
    assert [len(chunk) for chunk in chunks] == [PAGE] * 10 + [5]
    assert b"".join(chunks) == content
    assert chunks_of(cut_pages([b""])) == []
