"""The wire: the same frames however the bytes are cut, and nothing but frames."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.guest.wire import (
    HEADER_SIZE,
    PAYLOAD_LIMIT,
    WORDS_LIMIT,
    Decoder,
    Frame,
    Kind,
    WireError,
    encode,
    encode_credit,
    encode_request,
    encode_words,
    read_credit,
    read_words,
)

EMPTY = {Kind.WITHDRAW, Kind.END, Kind.DONE}
frames = st.builds(
    lambda kind, identity, payload: Frame(kind, identity, b"" if kind in EMPTY else payload),
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_the_same_frames_come_out_however_the_bytes_are_cut(sent: list[Frame], places: list[int]) -> None:
    decoder = Decoder()
    got = [frame for part in cut(b"".join(encode(*frame) for frame in sent), places) for frame in decoder.feed(part)]
    assert got == sent


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    decoder = Decoder()
    try:
        got = decoder.feed(data)
    except WireError:
        return
    assert data.startswith(b"".join(encode(*frame) for frame in got))


def test_a_frame_that_is_too_long_is_refused_by_its_header_alone() -> None:
    header = (PAYLOAD_LIMIT + 1).to_bytes(4, "big") + bytes([Kind.DATA]) + bytes(4)
    assert len(header) == HEADER_SIZE
    with pytest.raises(WireError, match="too long"):
        Decoder().feed(header)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(WireError, match="kind 77"):
        Decoder().feed(bytes(4) + bytes([77]) + bytes(4))


def test_a_frame_that_must_be_empty_is_refused_with_a_payload() -> None:
    with pytest.raises(WireError, match="carries nothing"):
        Decoder().feed(encode(Kind.END, 1, b"x"))


@pytest.mark.parametrize(
    "payload", [b"", b"[1]", b"{", b"\xff", b'{"a":NaN}', b"[" * 60_000, b'{"a":' + b"9" * 5000 + b"}"]
)
def test_words_that_are_no_object_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        read_words(payload)


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.booleans(), st.none())))
def test_words_come_back_as_they_went(words: dict[str, object]) -> None:
    assert read_words(Decoder().feed(encode_words(Kind.ANSWER, 1, words))[0].payload) == words


def test_a_name_of_any_bytes_travels() -> None:
    name = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    frame = Decoder().feed(encode_words(Kind.ANSWER, 1, {"name": name}))[0]
    assert read_words(frame.payload) == {"name": name}


def test_a_long_request_goes_in_parts_and_a_longer_one_not_at_all() -> None:
    words: dict[str, object] = {"text": "x" * (3 * PAYLOAD_LIMIT)}
    got = Decoder().feed(encode_request(7, words))
    assert [frame.kind for frame in got] == [Kind.PART] * 3 + [Kind.REQUEST]
    assert json.loads(b"".join(frame.payload for frame in got)) == words
    with pytest.raises(WireError, match="too long"):
        encode_request(7, {"text": "x" * WORDS_LIMIT})


def test_credit_is_four_bytes_and_not_nothing() -> None:
    assert read_credit(Decoder().feed(encode_credit(3, 4096))[0].payload) == 4096
    for payload in (b"", bytes(4), bytes(5)):
        with pytest.raises(WireError):
            read_credit(payload)
