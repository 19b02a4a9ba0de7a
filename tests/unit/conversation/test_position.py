"""Positions: what was given out is understood for ever, and nothing else is."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlive.base import ConversationId, InvalidError, new_conversation_id
from outlive.conversation.events import SEQ_MAX
from outlive.conversation.position import FORGOTTEN, START, Position, format_position, parse_position, tag_of

CONVERSATION = ConversationId("conv_0194f0a1b2c37d4e8f90a1b2c3d4e5f6")
TAG = tag_of(CONVERSATION)

seqs = st.integers(0, SEQ_MAX)
positions = st.builds(
    lambda seq, offsets: Position(seq, tuple(sorted(offsets.items()))),
    seqs,
    st.dictionaries(seqs, st.one_of(st.just(FORGOTTEN), st.integers(0, 10**12 - 1)), max_size=20),
)


@settings(deadline=None)  # the machine may be busy
@given(positions)
@example(START)
def test_a_position_that_was_given_out_is_understood(position: Position) -> None:
    assert parse_position(CONVERSATION, format_position(TAG, position)) == position


@settings(deadline=None)  # the machine may be busy
@given(positions)
def test_a_position_is_one_word_that_fits_a_header_and_a_url(position: Position) -> None:
    text = format_position(TAG, position)
    assert text.isascii()
    assert text.replace("-", "").replace(".", "").isalnum()


@settings(deadline=None)  # the machine may be busy
@given(positions, positions)
def test_different_positions_are_different_words(one: Position, other: Position) -> None:
    assert (format_position(TAG, one) == format_position(TAG, other)) == (one == other)


@settings(deadline=None)  # the machine may be busy
@given(positions)
def test_a_position_of_another_conversation_is_refused(position: Position) -> None:
    text = format_position(tag_of(new_conversation_id()), position)
    with pytest.raises(InvalidError) as raised:
        parse_position(CONVERSATION, text)
    assert raised.value.code == "position.foreign"


def test_a_position_written_by_the_first_version_is_understood_for_ever() -> None:
    assert parse_position(CONVERSATION, "1-c3d4e5f6-0") == START
    assert parse_position(CONVERSATION, "1-c3d4e5f6-17-3.250-9.x") == Position(17, ((3, 250), (9, FORGOTTEN)))


hostile = st.one_of(
    st.text(),
    st.text(alphabet="0123456789abcdef-.x"),
    st.from_regex(r"\A1-[0-9a-f]{8}-[0-9]+(-[0-9]+\.([0-9]+|x))*", fullmatch=True),
    st.builds(
        lambda text, at, junk: text[:at] + junk + text[at:],
        positions.map(lambda position: format_position(TAG, position)),
        st.integers(0, 40),
        st.text(max_size=3),
    ),
)


@settings(deadline=None)  # the machine may be busy
@given(hostile)
@example("")
@example("1-c3d4e5f6-4294967296")
@example("1-c3d4e5f6-" + "9" * 5000)
@example("1-c3d4e5f6-1" + "-1.1" * 100_000)
@example("1-c3d4e5f6-١")
@example("1-c3d4e5f6-1\n")
@example("1-C3D4E5F6-1")
@example("2-c3d4e5f6-1")
@example("\ud800")
def test_hostile_input_is_a_position_or_invalid_and_nothing_else(text: str) -> None:
    try:
        position = parse_position(CONVERSATION, text)
    except InvalidError:
        return
    assert 0 <= position.seq <= SEQ_MAX
    assert parse_position(CONVERSATION, format_position(TAG, position)) == position


@pytest.mark.parametrize(
    "text",
    ["", "0", "17", "-1", "1-c3d4e5f6-4294967296", "1-c3d4e5f6-١", "1-c3d4e5f6-1\n", "1-c3d4e5f6-1-", "1-c3d4e5f6-1-2"],
)
def test_what_is_not_a_position_is_called_malformed(text: str) -> None:
    with pytest.raises(InvalidError) as raised:
        parse_position(CONVERSATION, text)
    assert raised.value.code == "position.malformed"
