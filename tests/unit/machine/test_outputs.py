"""What a command printed is kept once, whole up to its bound, and found again by the next process."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.node.outputs import INLINE_LIMIT, KeptStream


def test_a_short_output_makes_no_file_and_acknowledges_nothing(tmp_path: Path) -> None:
    stream = KeptStream(tmp_path / "out")
    assert stream.take(0, b"hello") == b"hello"
    assert (stream.text, stream.kept, stream.is_longer) == ("hello", 0, False)
    assert not (tmp_path / "out").exists()


def test_the_beginning_is_given_out_only_where_nothing_of_it_is_missing(tmp_path: Path) -> None:
    stream = KeptStream(tmp_path / "out")
    stream.take(0, b"one")
    assert stream.beginning == b"one"
    stream.take(5, b"three")
    assert stream.beginning == b""


def test_a_long_one_is_spooled_and_taken_up_again_by_the_next_process(tmp_path: Path) -> None:
    whole = bytes(range(256)) * 4_096
    stream = KeptStream(tmp_path / "out")
    for at in range(0, len(whole), 100_000):
        stream.take(at, whole[at : at + 100_000])
    assert stream.kept == len(whole)
    again = KeptStream.reopen(tmp_path / "out")
    assert (again.size, again.kept) == (len(whole), len(whole))
    assert again.text == whole[:INLINE_LIMIT].decode("utf-8", "replace")
    again.take(len(whole), b"more")
    assert (tmp_path / "out").read_bytes() == whole + b"more"


@given(st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=40)), max_size=30))
def test_pieces_that_overlap_count_once_and_a_gap_is_counted_as_missing(pieces: list[tuple[int, bytes]]) -> None:
    stream = KeptStream(Path("/nonexistent/never-written"))
    held, size = b"", 0
    for offset, data in pieces:
        new = stream.take(offset, data)
        assert new == data[max(0, size - offset) :]
        if new:
            held += new
            size = max(size, offset) + len(new)
    assert stream.text == held.decode("utf-8", "replace")
    assert (stream.size, stream.missing) == (size, size - len(held))


def test_no_more_than_the_bound_is_kept_whatever_a_guest_sends(tmp_path: Path) -> None:
    stream = KeptStream(tmp_path / "spool" / "out", 300_000)
    for at in range(0, 1_000_000, 100_000):
        stream.take(at, b"x" * 100_000)
    assert (stream.size, stream.missing, stream.kept) == (1_000_000, 700_000, 1_000_000)
    assert (tmp_path / "spool" / "out").stat().st_size == 300_000
    stream.discard()
    assert not (tmp_path / "spool").exists()


@given(st.integers(0, 700_000), st.integers(0, 700_000))
def test_what_comes_again_after_a_roll_back_takes_the_place_of_what_was_kept(kept: int, acknowledged: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        KeptStream(path).take(0, b"a" * kept)
        stream = KeptStream.reopen(path)
        begins = min(acknowledged, stream.size)  # a guest has acknowledged what is kept, never more
        stream.rewind(begins)
        assert (stream.size, stream.missing) == (begins, 0)
        stream.take(begins, b"b" * 300_000)
        assert stream.size == begins + 300_000
        assert stream.text == (b"a" * begins + b"b" * 300_000)[:INLINE_LIMIT].decode()
        assert path.read_bytes() == b"a" * begins + b"b" * 300_000
