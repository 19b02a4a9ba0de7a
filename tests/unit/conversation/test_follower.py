"""The follower: what is shown is a function of the log, wherever the follower was cut off."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.base import ConversationId, StepId, TurnId
from outlive.conversation.events import Delta, Event, Rewound
from outlive.conversation.feed import Grown
from outlive.conversation.follower import WATCHED_LIMIT, Follower, Frame
from outlive.conversation.log import OpenAttempt
from outlive.conversation.position import START, parse_position

CONVERSATION = ConversationId("conv_" + "0" * 24 + "abcdef01")
TURN = TurnId("turn_" + "1" * 32)
A, B = StepId("step_" + "a" * 32), StepId("step_" + "b" * 32)


def event(seq: int, type: str, step: StepId | None = None, attempt: int | None = None) -> Event:
    return Event(seq, f"evt_{seq:032x}", TURN, step, attempt, type, 1, "at", "actor", "{}", None)  # type: ignore[arg-type]


def delta(start: int, offset: int, text: str, step: StepId = A, attempt: int = 1) -> Delta:
    return Delta(start, offset, TURN, step, attempt, "model.delta", text, None, None, "at", "actor")


def open_after(log: list[Event], at: int) -> list[OpenAttempt]:
    """The oracle for `EventLog.open_attempts`, straight from the definition."""
    found: dict[StepId, OpenAttempt] = {}
    for each in log[:at]:
        if each.type == "step.started":
            assert each.step is not None
            assert each.attempt is not None
            found[each.step] = OpenAttempt(each.step, each.attempt, each.seq, each.turn)
        elif each.type in ("model.responded", "tool.finished"):
            found.pop(each.step, None)  # type: ignore[arg-type]
        elif each.type in ("turn.finished", "turn.interrupted", "conversation.created"):
            found.clear()
    return list(found.values())


def resume(log: list[Event], position: str) -> Follower:
    parsed = parse_position(CONVERSATION, position)
    return Follower(CONVERSATION, parsed, open_after(log, parsed.seq))


def durable(frames: list[Frame]) -> list[tuple[str, object]]:
    return [(type(frame.body).__name__, frame.body) for frame in frames if not isinstance(frame.body, Delta)]


RETRIED = [
    event(1, "conversation.created"),
    event(2, "step.started", A, 1),
    event(3, "step.started", B, 1),
    event(4, "step.started", A, 2),
    event(5, "model.responded", A, 2),
    event(6, "tool.finished", B, 1),
    event(7, "turn.finished"),
]


def test_a_retried_step_is_rewound_once_before_its_new_attempt() -> None:
    follower = Follower(CONVERSATION, START, [])
    frames = [frame for each in RETRIED for frame in follower.event(each)]
    kinds = [frame.body.type if isinstance(frame.body, Event) else "step.rewound" for frame in frames]
    assert kinds == [*(each.type for each in RETRIED[:3]), "step.rewound", *(each.type for each in RETRIED[3:])]
    [rewound] = [frame.body for frame in frames if isinstance(frame.body, Rewound)]
    assert (rewound.step, rewound.attempt) == (A, 2)


def test_a_follower_cut_off_between_rewind_and_new_attempt_is_not_told_twice() -> None:
    follower = Follower(CONVERSATION, START, [])
    frames = [frame for each in RETRIED for frame in follower.event(each)]
    [at] = [index for index, frame in enumerate(frames) if isinstance(frame.body, Rewound)]
    again = resume(RETRIED, frames[at].position)
    rest = [frame for each in RETRIED[again.seq :] for frame in again.event(each)]
    assert durable(rest) == durable(frames[at + 1 :])


def test_a_delta_is_shown_once_whatever_way_it_was_cut() -> None:
    follower = Follower(CONVERSATION, START, [])
    for each in RETRIED[:2]:
        follower.event(each)
    shown = ""
    for piece in (delta(2, 0, "Hel"), delta(2, 0, "Hello"), delta(2, 3, "lo"), delta(2, 4, "o wor"), delta(2, 9, "ld")):
        frame = follower.delta(piece)
        shown += frame.body.text if frame and isinstance(frame.body, Delta) else ""
    assert shown == "Hello world"


def test_a_zombie_s_delta_is_never_shown_after_the_rewind() -> None:
    follower = Follower(CONVERSATION, START, [])
    for each in RETRIED[:4]:
        follower.event(each)
    assert follower.delta(delta(2, 0, "from the dead")) is None
    assert follower.delta(delta(4, 0, "alive", attempt=2)) is not None


def test_a_delta_of_a_sealed_step_is_not_shown() -> None:
    follower = Follower(CONVERSATION, START, [])
    for each in RETRIED[:5]:
        follower.event(each)
    assert follower.delta(delta(4, 0, "late", attempt=2)) is None


def test_a_follower_without_deltas_is_shown_none_and_its_positions_get_them_later() -> None:
    quiet = Follower(CONVERSATION, START, [], deltas=False)
    for each in RETRIED[:2]:
        quiet.event(each)
    assert quiet.delta(delta(2, 0, "Hello")) is None
    frame = resume(RETRIED, quiet.position()).delta(delta(2, 0, "Hello"))
    assert frame is not None
    assert isinstance(frame.body, Delta)
    assert frame.body.text == "Hello"


def test_an_end_of_turn_and_the_birth_of_a_fork_close_what_was_open() -> None:
    for closing in ("turn.finished", "turn.interrupted", "conversation.created"):
        follower = Follower(CONVERSATION, START, [])
        for each in [*RETRIED[:2], event(3, closing)]:
            follower.event(each)
        assert follower.delta(delta(2, 0, "late")) is None


def test_what_is_ahead_of_the_follower_is_read_from_the_log_first() -> None:
    follower = Follower(CONVERSATION, START, [])
    follower.event(RETRIED[0])
    assert not follower.is_ahead(RETRIED[1])
    assert follower.is_ahead(RETRIED[2])
    assert follower.is_ahead(delta(2, 0, "x"))
    assert not follower.is_ahead(Grown(1))
    assert follower.is_ahead(Grown(2))
    assert follower.event(RETRIED[0]) == []


def test_live_output_of_very_many_steps_at_once_is_left_out_rather_than_making_positions_endless() -> None:
    log = [event(1, "conversation.created")]
    log += [event(seq, "step.started", StepId(f"step_{seq:032x}"), 1) for seq in range(2, WATCHED_LIMIT + 12)]
    follower = Follower(CONVERSATION, START, [])
    for each in log:
        follower.event(each)
    shown = [follower.delta(delta(seq, 0, "x" * 99_999, StepId(f"step_{seq:032x}"))) for seq in range(2, len(log) + 1)]
    assert sum(frame is not None for frame in shown) == WATCHED_LIMIT
    assert parse_position(CONVERSATION, follower.position()).seq == len(log)


steps = st.sampled_from([A, B, StepId("step_" + "c" * 32)])


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Any log that `append.py` would let through."""
    log = [event(1, "conversation.created")]
    last: dict[StepId, int] = {}
    sealed: set[StepId] = set()
    for _ in range(draw(st.integers(0, 25))):
        seq = len(log) + 1
        step = draw(steps)
        kind = draw(st.sampled_from(["start", "start", "seal", "message", "end", "tool"]))
        opened = {attempt.step for attempt in open_after(log, len(log))}
        if kind == "start" and step not in sealed and (step in opened or step not in last):
            last[step] = last.get(step, 0) + draw(st.integers(1, 2))
            log.append(event(seq, "step.started", step, last[step]))
        elif kind == "seal" and step in opened:
            sealed.add(step)
            log.append(event(seq, "model.responded", step, last[step]))
        elif kind == "tool" and step in opened:
            log.append(event(seq, "tool.requested", step, last[step]))
        elif kind == "end":
            log.append(event(seq, draw(st.sampled_from(["turn.finished", "turn.interrupted"]))))
        else:
            log.append(event(seq, "message.sent"))
    return log


@given(log=logs(), data=st.data())
def test_a_follower_resumed_at_any_frame_is_shown_what_an_uninterrupted_one_is(
    log: list[Event], data: st.DataObject
) -> None:
    whole = Follower(CONVERSATION, START, [])
    all_frames: list[Frame] = []
    for each in log:
        all_frames.extend(whole.event(each))
        for attempt in open_after(log, each.seq):
            if data.draw(st.booleans()):
                seen = dict(parse_position(CONVERSATION, whole.position()).offsets).get(attempt.start, 0)
                piece = delta(attempt.start, seen, "tok", attempt.step, attempt.attempt)
                frame = whole.delta(piece)
                assert frame is not None
                all_frames.append(frame)
    cut = data.draw(st.integers(0, len(all_frames) - 1))
    again = resume(log, all_frames[cut].position)
    rest = [frame for each in log[again.seq :] for frame in again.event(each)]
    assert durable(rest) == durable(all_frames[cut + 1 :])
    # What was seen of an open attempt is not shown again.
    for start, seen in parse_position(CONVERSATION, all_frames[cut].position).offsets:
        if seen > 0:
            assert resume(log, all_frames[cut].position).delta(delta(start, 0, "x" * seen)) is None
