"""The SSE parser reads what the WHATWG rules say, however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import BrokenError
from outlive.client.sse import SseFrame, SseParser


def parse(*chunks: bytes) -> list[SseFrame]:
    parser = SseParser()
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_all_three_line_ends_are_read(end: bytes) -> None:
    lines = [b"id: 7", b"event: model.delta", b"data: {}", b"", b"data: 2", b"", b""]
    assert parse(end.join(lines)) == [SseFrame("7", "model.delta", "{}"), SseFrame(None, "message", "2")]


def test_a_crlf_cut_between_its_halves_is_one_line_end() -> None:
    assert parse(b"data: 1\r", b"\n", b"data: 2\r", b"\n\r", b"\n") == [SseFrame(None, "message", "1\n2")]


def test_lines_of_data_are_joined_and_one_leading_space_is_dropped() -> None:
    assert parse(b"data:  a\ndata\ndata:b\n\n") == [SseFrame(None, "message", " a\n\nb")]


def test_comments_unknown_fields_and_frames_without_data_give_nothing() -> None:
    assert parse(b": ping\n\nretry: 10\nfoo: bar\n\nid: 3\nevent: x\n\n") == []


def test_an_id_with_a_nul_is_ignored() -> None:
    assert parse(b"id: a\0b\ndata: 1\n\n") == [SseFrame(None, "message", "1")]


def test_a_byte_order_mark_is_dropped_once_also_when_cut() -> None:
    assert parse(b"\xef", b"\xbb", b"\xbfdata: \xef\xbb\xbf1\n\n") == [SseFrame(None, "message", "\ufeff1")]


def test_characters_that_only_look_like_line_ends_stay_in_the_data() -> None:
    assert parse("data: a\u2028b\x0bc\x85d\n\n".encode()) == [SseFrame(None, "message", "a\u2028b\x0bc\x85d")]


def test_a_character_cut_between_chunks_arrives_whole() -> None:
    raw = "data: 🦉é\n\n".encode()
    assert parse(*(raw[i : i + 1] for i in range(len(raw)))) == [SseFrame(None, "message", "🦉é")]


def test_bytes_that_are_no_utf8_do_not_break_the_stream() -> None:
    assert parse(b"data: \xff\n\ndata: 2\n\n") == [SseFrame(None, "message", "\ufffd"), SseFrame(None, "message", "2")]


def test_a_frame_that_was_cut_off_is_not_given_out() -> None:
    assert parse(b"data: 1\n\nid: 2\ndata: 2\n") == [SseFrame(None, "message", "1")]


@pytest.mark.parametrize("piece", [b"x" * 10, b"\ndata: " + b"x" * 10])
def test_a_frame_without_an_end_is_refused(piece: bytes) -> None:
    parser = SseParser(limit=1_000)
    with pytest.raises(BrokenError) as caught:
        _ = [parser.feed(b"data: " + piece) for _ in range(1_000)]
    assert caught.value.code == "stream.frame_too_big"


def test_any_number_of_small_frames_and_pings_is_no_big_frame() -> None:
    parser = SseParser(limit=100)
    for _ in range(1_000):
        assert parser.feed(b": ping\n") == []
        assert parser.feed(b"id: 1\ndata: 22\n\n") == [SseFrame("1", "message", "22")]


LINES = st.lists(
    st.one_of(
        st.sampled_from(["", "", ":", ": ping", "data", "id", "event: a", "retry: 1", "\ufeffdata: 1", "id: a\0b"]),
        st.builds(
            "{}:{}".format,
            st.sampled_from(["data", "id", "event", "dat\u0430"]),
            st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12),
        ),
    ),
    max_size=30,
)


@given(LINES, st.data())
def test_random_chunks_give_the_frames_of_the_whole(lines: list[str], data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=len(lines), max_size=len(lines)))
    raw = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    chunks = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert parse(*chunks) == parse(raw)


@given(LINES)
def test_the_kind_of_line_end_makes_no_difference(lines: list[str]) -> None:
    assert parse("".join(line + "\r\n" for line in lines).encode()) == parse(
        "".join(line + "\n" for line in lines).encode()
    )
