"""Frames: what is encoded is what happened, and what is shared is never somebody else's."""

import json
from typing import Any, Literal

import pytest

from outlive.api.frames import CACHED_BYTES, CACHED_FRAMES, FrameCache, encode_frame
from outlive.api.metrics import Metrics
from outlive.base import ConversationId, EventId, StepId, SystemClock, TurnId
from outlive.conversation.events import Delta, Event, Rewound
from outlive.conversation.follower import Frame

CONVERSATION = ConversationId("conv_" + "1" * 32)
OTHER = ConversationId("conv_" + "2" * 24 + "1" * 8)
STEP = StepId("step_" + "3" * 32)
TURN = TurnId("turn_" + "4" * 32)
AT = "2030-01-02T03:04:05.000006Z"


def event(seq: int = 1, data: dict[str, Any] | None = None) -> Event:
    id = EventId("evt_" + "5" * 32)
    return Event(seq, id, TURN, None, None, "message.sent", 1, AT, "me", json.dumps(data or {"text": "x"}), None)


def delta(text: str, offset: int = 0, start: int = 3, call: str | None = None) -> Delta:
    kind: Literal["model.delta", "tool.output"] = "tool.output" if call else "model.delta"
    return Delta(start, offset, TURN, STEP, 1, kind, text, call, "stdout" if call else None, AT, "me")


def cache() -> FrameCache:
    return FrameCache(Metrics(), SystemClock())


def fields(chunk: bytes) -> dict[str, str]:
    assert chunk.endswith(b"\n\n")
    return dict(line.split(": ", 1) for line in chunk.decode().rstrip("\n").split("\n"))


NASTY = 'line\nbreak\r\n\u2028 "quoted" \\ \0 ☃ \U0001f600\n\nid: fake\n'


def test_an_event_is_told_with_its_whole_envelope() -> None:
    shown = fields(encode_frame(CONVERSATION, Frame("1-x-1", event(data={"text": NASTY})._replace(actor='a"b\n'))))
    assert (shown["id"], shown["event"]) == ("1-x-1", "message.sent")
    assert json.loads(shown["data"]) == {
        "id": "evt_" + "5" * 32,
        "seq": 1,
        "position": "1-x-1",
        "conversation": CONVERSATION,
        "turn": TURN,
        "step": None,
        "attempt": None,
        "type": "message.sent",
        "v": 1,
        "at": AT,
        "actor": 'a"b\n',
        "data": {"text": NASTY},
    }


@pytest.mark.parametrize("call", [None, "call_1"])
def test_a_delta_is_told_with_its_place_and_without_a_seq(call: str | None) -> None:
    shown = fields(encode_frame(CONVERSATION, Frame("1-x-3-3.9", delta(NASTY, 7, call=call))))
    told = json.loads(shown["data"])
    assert shown["event"] == told["type"] == ("tool.output" if call else "model.delta")
    assert (told["id"], told["seq"], told["step"], told["attempt"]) == (f"{STEP}:1:7", None, STEP, 1)
    called = {"call": call, "stream": "stdout"} if call else {}
    assert told["data"] == {**called, "text": NASTY, "offset": 7}


def test_a_rewind_names_the_step_and_the_attempt_that_begins() -> None:
    shown = fields(encode_frame(CONVERSATION, Frame("1-x-3-3.x", Rewound(TURN, STEP, 2, AT, "me"))))
    told = json.loads(shown["data"])
    assert shown["event"] == told["type"] == "step.rewound"
    assert (told["seq"], told["data"]) == (None, {"step": STEP, "attempt": 2})


def test_one_chunk_holds_all_frames_in_order() -> None:
    frames = [Frame("1-x-1", event(1)), Frame("1-x-2", event(2)), Frame("1-x-2-3.1", delta("a"))]
    chunk = cache().encode(CONVERSATION, frames, AT)
    assert chunk == b"".join(encode_frame(CONVERSATION, frame) for frame in frames)


def test_frames_that_meet_at_one_position_are_told_apart() -> None:
    """An event, two deltas that end there, a delta of another step, a rewind, and another conversation's."""
    position = "1-11111111-9-3.5-7.5"
    bodies: list[Event | Delta | Rewound] = [
        event(9),
        delta("hello"),
        delta("lo", 3),
        delta("other", start=7),
        Rewound(TURN, STEP, 2, AT, "me"),
    ]
    shared = cache()
    for _ in range(2):
        for conversation in (CONVERSATION, OTHER):
            for body in bodies:
                frame = Frame(position, body)
                assert shared.encode(conversation, [frame], AT) == encode_frame(conversation, frame)


def test_what_is_kept_is_bounded() -> None:
    shared = cache()
    for seq in range(CACHED_FRAMES + 100):
        shared.encode(CONVERSATION, [Frame(f"1-x-{seq}", event(seq))], AT)
    assert len(shared._frames) == len(shared._order) == CACHED_FRAMES
    for seq in range(5):
        shared.encode(CONVERSATION, [Frame(f"1-y-{seq}", event(seq, {"text": "x" * (CACHED_BYTES // 4)}))], AT)
    assert sum(map(len, shared._frames.values())) == shared._size <= CACHED_BYTES
    huge = Frame("1-z-1", event(1, {"text": "x" * CACHED_BYTES}))
    assert shared.encode(CONVERSATION, [huge], AT) == encode_frame(CONVERSATION, huge)
    assert shared._size == 0


def test_the_lag_is_measured_of_what_is_live_and_only_once() -> None:
    metrics = Metrics()
    shared = FrameCache(metrics, SystemClock())

    def measured() -> float | None:
        return metrics.registry.get_sample_value("outlive_stream_lag_seconds_count")

    old = event()._replace(at="2020-01-01T00:00:00.000000Z")
    shared.encode(CONVERSATION, [Frame("1-x-1", old)], "2025-01-01T00:00:00.000000Z")
    assert measured() == 0
    for _ in range(2):
        shared.encode(CONVERSATION, [Frame("1-x-2", event(2))], "2025-01-01T00:00:00.000000Z")
    assert measured() == 1
