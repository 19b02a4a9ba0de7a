"""The transcript, whatever happens: live views end up as the log's, and folding may stop and go on anywhere."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import StepId
from outlive.conversation.events import (
    ConversationCreated,
    Delta,
    Event,
    MachineLost,
    MessageSent,
    Parent,
    Rewound,
    TurnFinished,
    TurnInterrupted,
)
from outlive.conversation.projection import GAP, Transcript
from unit.conversation.placing import ANSWER, DONE, MODEL, ONE, REQUEST, TOOL, Log, delta, only, rewound

STEPS = [StepId(f"step_{number}") for number in range(3)]
attempts = st.integers(1, 4)
live = st.one_of(
    st.builds(delta, st.text(max_size=5), st.integers(0, 12), st.sampled_from(STEPS), attempts),
    st.builds(rewound, attempts, st.sampled_from(STEPS)),
)
durable = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(STEPS), st.sampled_from([MODEL, TOOL])),
    st.tuples(st.just("go on"), st.sampled_from(STEPS), st.sampled_from([ANSWER, REQUEST, DONE])),
    st.tuples(
        st.just("happen"),
        st.none(),
        st.sampled_from(
            [
                MessageSent(message="msg", text="Hi"),
                TurnFinished(outcome="done"),
                TurnFinished(outcome="failed"),
                TurnInterrupted(),
                ConversationCreated(parent=Parent(conversation="conv", at=1)),
                MachineLost(machine="mach"),
            ]
        ),
    ),
)


class Script:
    """A log that obeys the rules of `append.py`, and one follower's stream of it: live frames thrown in anywhere."""

    def __init__(self, happenings: list[Any]) -> None:
        self.log = Log()
        self.stream: list[Event | Delta | Rewound] = []
        attempt: dict[StepId, int] = {}
        open_steps: set[StepId] = set()
        for happening in happenings:
            if isinstance(happening, (Delta, Rewound)):
                self.stream.append(happening)
                continue
            verb, step, data = happening
            if verb == "start":
                if step in attempt and step not in open_steps:
                    continue  # sealed or abandoned: never run again
                attempt[step] = attempt.get(step, 0) + 1
                open_steps.add(step)
            elif verb == "go on":
                if step not in open_steps:
                    continue
                if data is not REQUEST:
                    open_steps.discard(step)
            elif isinstance(data, (TurnFinished, TurnInterrupted, ConversationCreated)):
                open_steps.clear()
            self.stream.append(self.log.add(data, step, attempt.get(step) if step else None))
        self.is_quiet = not open_steps


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.one_of(durable, live), max_size=40))
def test_a_live_view_ends_up_as_the_view_of_the_log_alone(happenings: list[Any]) -> None:
    script = Script([*happenings, ("happen", None, TurnFinished(outcome="done"))])
    view = Transcript()
    for frame in script.stream:
        view.fold(frame)
    assert script.is_quiet
    assert view.to_json() == script.log.transcript().to_json()


@settings(deadline=None)  # the machine may be busy
@given(st.lists(durable, max_size=40), st.integers(0, 40))
def test_folding_may_stop_anywhere_and_go_on(happenings: list[Any], stop: int) -> None:
    events = Script(happenings).log.events
    transcript = Transcript()
    for event in events[:stop]:
        transcript.fold(event)
    json.dumps(transcript.to_json())  # looking at it in between must not disturb it
    assert transcript.head == len(events[:stop])
    for event in events[transcript.head :]:
        transcript.fold(event)
    whole = Transcript()
    for event in events:
        whole.fold(event)
    assert transcript.to_json() == whole.to_json()


@settings(deadline=None)  # the machine may be busy
@given(st.lists(durable, max_size=40))
def test_each_step_has_one_item_and_items_stay_in_their_places(happenings: list[Any]) -> None:
    events = Script(happenings).log.events
    transcript = Transcript()
    places: list[Any] = []
    for event in events:
        transcript.fold(event)
        items = transcript.to_json()["items"]
        now = [item.get("step") or item["seq"] for item in items]
        assert now[: len(places)] == places
        places = now
    assert len(set(places)) == len(places)
    assert [place for place in places if place in STEPS] == list(
        dict.fromkeys(event.step for event in events if event.step is not None)
    )


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=20))
def test_live_output_without_a_gap_is_the_text_however_it_is_cut_and_repeated(
    text: str, cuts: list[tuple[int, int]]
) -> None:
    view = Transcript()
    view.fold(Log().add(MODEL, ONE, 1))
    seen = 0
    for start, length in cuts:
        start = min(start, seen)  # never beyond what was seen: no gap
        view.fold(delta(text[start : start + length], start))
        seen = max(seen, min(len(text), start + length))
    assert only(view)["text"] == text[:seen]


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.one_of(durable, live), max_size=40))
def test_text_of_a_dead_attempt_is_never_shown(happenings: list[Any]) -> None:
    """Live output is marked here with its attempt; an item shows only that of the attempt it stands at."""
    script = Script([h._replace(text=f"<{h.attempt}>" * 2) if isinstance(h, Delta) else h for h in happenings])
    view = Transcript()
    for frame in script.stream:
        view.fold(frame)
        for item in view.to_json()["items"]:
            if item.get("state") == "open":
                shown = item["text"] if item["kind"] == "answer" else item["output"]
                assert set(shown) <= set(f"<{item['attempt']}>{GAP}")
