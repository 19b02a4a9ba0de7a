"""What is retained of open attempts, and what never is."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.base import ConversationId, StepId, new_step_id
from outlive.conversation.events import Delta, Event
from outlive.conversation.feed import RETAINED_CHARACTERS, Grown
from outlive.conversation.tail import RETAINED_PER_CONVERSATION, Tail, Tails
from outlive.testing.feed import make_delta, make_event

_STEP = StepId("step_1")


def _kept(tail: Tail) -> list[tuple[int, int, str]]:
    return [(one.start, one.offset, one.text) for one in tail.retained()]


def test_adjacent_text_becomes_one_piece() -> None:
    tail = Tail()
    tail.fold(make_delta(_STEP, 1, offset, "ab") for offset in range(0, 10_000, 2))
    assert _kept(tail) == [(1, 0, "ab" * 5000)]


def test_streams_stay_apart_and_in_order() -> None:
    tail = Tail()
    tail.fold([make_delta(_STEP, 1, 0, "a", "stdout"), make_delta(_STEP, 1, 1, "b", "stderr")])
    tail.fold([make_delta(_STEP, 1, 2, "c", "stderr"), make_delta(_STEP, 1, 3, "d", "stdout")])
    assert [(one.offset, one.text, one.stream) for one in tail.retained()] == [
        (0, "a", "stdout"),
        (1, "bc", "stderr"),
        (3, "d", "stdout"),
    ]


def test_a_gap_stays_a_gap() -> None:
    tail = Tail()
    tail.fold([make_delta(_STEP, 1, 0, "ab"), make_delta(_STEP, 1, 9, "yz")])
    assert _kept(tail) == [(1, 0, "ab"), (1, 9, "yz")]


def test_what_is_heard_twice_is_kept_once() -> None:
    tail = Tail()
    for offset, text in ((0, "abc"), (0, "abc"), (1, "b"), (2, "cde"), (0, "abcdef")):
        tail.fold([make_delta(_STEP, 1, offset, text)])
    assert _kept(tail) == [(1, 0, "abcdef")]


def test_the_oldest_text_goes_first_and_offsets_stay_right() -> None:
    tail = Tail()
    line = "0123456789" * 7
    for number in range(5000):
        tail.fold([make_delta(_STEP, 1, number * 70, line)])
    [(start, offset, text)] = _kept(tail)
    assert (start, offset, len(text)) == (1, 350_000 - RETAINED_CHARACTERS, RETAINED_CHARACTERS)
    assert text == (line * 5000)[offset:]


def test_one_huge_delta_is_bounded_too() -> None:
    tail = Tail()
    tail.fold([make_delta(_STEP, 1, 5, "x" * (3 * RETAINED_CHARACTERS) + "end")])
    [(_, offset, text)] = _kept(tail)
    assert len(text) == RETAINED_CHARACTERS
    assert text.endswith("end")
    assert offset + len(text) == 5 + 3 * RETAINED_CHARACTERS + 3


def test_text_that_changes_its_stream_at_each_character_is_bounded_by_what_it_costs() -> None:
    tail = Tail()
    for offset in range(5000):
        tail.fold([make_delta(_STEP, 1, offset, "x", ("stdout", "stderr")[offset % 2])])
    assert len(tail.retained()) <= RETAINED_CHARACTERS // 256 + 1
    assert tail.retained()[-1].end == 5000


def test_the_event_that_seals_a_step_drops_its_text_and_no_zombie_brings_it_back() -> None:
    for seal in ("model.responded", "tool.finished"):
        tail = Tail()
        tail.fold([make_delta(_STEP, 1, 0, "a"), make_delta(StepId("other"), 2, 0, "b"), make_event(3, seal, _STEP)])
        assert _kept(tail) == [(2, 0, "b")]
        tail.fold([make_delta(_STEP, 1, 1, "zombie")])
        assert _kept(tail) == [(2, 0, "b")]


def test_a_new_attempt_drops_the_older_one() -> None:
    for newer in ([make_event(5, "step.started", _STEP)], []):  # with and without having heard of its start
        tail = Tail()
        tail.fold(
            [make_delta(_STEP, 1, 0, "old"), *newer, make_delta(_STEP, 5, 0, "new"), make_delta(_STEP, 1, 3, "old")]
        )
        assert _kept(tail) == [(5, 0, "new")]


def test_the_end_of_a_turn_drops_everything_that_had_started() -> None:
    for end in ("turn.finished", "turn.interrupted"):
        tail = Tail()
        tail.fold([make_delta(_STEP, 1, 0, "a"), make_delta(StepId("next"), 9, 0, "b"), make_event(8, end)])
        assert _kept(tail) == [(9, 0, "b")]
        tail.fold([make_delta(StepId("zombie"), 2, 0, "c")])
        assert _kept(tail) == [(9, 0, "b")]


def test_an_old_event_that_comes_late_drops_nothing_newer() -> None:
    tail = Tail()
    tail.fold([make_delta(_STEP, 5, 0, "new"), make_event(3, "step.started", _STEP), make_event(4, "turn.finished")])
    assert _kept(tail) == [(5, 0, "new")]


def test_events_that_were_left_out_may_have_ended_anything() -> None:
    tail = Tail()
    tail.fold([make_delta(_STEP, 1, 0, "a"), Grown(7)])
    assert _kept(tail) == []
    assert tail.size == 0


def test_a_conversation_with_many_open_attempts_is_bounded() -> None:
    tail = Tail()
    for start in range(1, 20):
        tail.fold([make_delta(new_step_id(), start, 0, "x" * RETAINED_CHARACTERS)])
    assert tail.size <= RETAINED_PER_CONVERSATION
    assert [start for start, _, _ in _kept(tail)] == [17, 18, 19]


def test_all_conversations_together_are_bounded_and_the_quietest_goes_first() -> None:
    tails = Tails(limit=10_000)
    names = [ConversationId(f"conv_{number}") for number in range(5)]
    for name in names:
        tails.fold(name, [make_delta(_STEP, 1, 0, name * 300)], keep=False)
    tails.fold(names[0], [make_delta(_STEP, 1, len(names[0]) * 300, "more")], keep=False)
    tails.fold(ConversationId("conv_new"), [make_delta(_STEP, 1, 0, "x" * 4000)], keep=False)
    assert tails.size <= 10_000
    assert tails.retained(names[1]) == []
    assert tails.retained(ConversationId("conv_new")) != []


def test_a_conversation_without_anything_open_costs_nothing() -> None:
    tails = Tails()
    conversation = ConversationId("conv_1")
    tails.fold(conversation, [make_event(1)], keep=False)
    assert len(tails) == 0
    tails.fold(conversation, [make_event(1), make_delta(_STEP, 1, 0, "a")], keep=False)
    assert len(tails) == 1
    tails.fold(conversation, [make_event(2, "turn.finished")], keep=False)
    assert (len(tails), tails.size) == (0, 0)
    tails.fold(conversation, [make_event(3)], keep=True)
    assert len(tails) == 1
    tails.release(conversation)
    assert len(tails) == 0


_SIGNALS = st.lists(
    st.one_of(
        st.builds(
            lambda step, length, kind: ("text", step, length, kind),
            st.integers(0, 2),
            st.integers(1, 40),
            st.sampled_from([None, "stdout", "stderr"]),
        ),
        st.builds(lambda step: ("restart", step), st.integers(0, 2)),
        st.builds(lambda step: ("seal", step), st.integers(0, 2)),
        st.just(("turn",)),
    ),
    max_size=60,
)


@given(_SIGNALS)
def test_what_is_retained_is_what_the_open_attempts_streamed(script: list[tuple[object, ...]]) -> None:
    tail, seq = Tail(), 0
    starts: dict[object, int] = {}
    texts: dict[object, str] = {}
    for line in script:
        step = StepId(f"step_{line[1]}") if len(line) > 1 else None
        signals: list[Event | Delta | Grown] = []
        if line[0] == "turn":
            seq += 1
            signals.append(make_event(seq, "turn.finished"))
            starts.clear()
            texts.clear()
        elif line[0] == "seal" and step in starts:
            seq += 1
            signals.append(make_event(seq, "model.responded", step))
            del starts[step], texts[step]
        elif line[0] == "restart" or (line[0] == "text" and step not in starts):
            seq += 1
            signals.append(make_event(seq, "step.started", step))
            starts[step], texts[step] = seq, ""
        if line[0] == "text":
            assert step is not None
            length, kind = line[2], line[3]
            assert isinstance(length, int)
            text = chr(97 + seq % 26) * length
            signals.append(
                make_delta(step, starts[step], len(texts[step]), text, kind if isinstance(kind, str) else None)
            )
            texts[step] += text
        tail.fold(signals)

    found: dict[int, str] = {}
    for one in tail.retained():
        assert one.offset == len(found.get(one.start, ""))
        found[one.start] = found.get(one.start, "") + one.text
    assert found == {starts[step]: text for step, text in texts.items() if text}
    assert (tail.size == 0) == (not found)
