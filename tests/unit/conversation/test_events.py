"""The closed union of events, held to the files of every version ever written."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from outlive.base import EventId, StepId, TurnId, is_id
from outlive.conversation.events import (
    DURABLE,
    SEALS,
    STEP_TYPES,
    ConversationCreated,
    Delta,
    Event,
    EventData,
    MachineLost,
    MessageSent,
    ModelResponded,
    NewEvent,
    text_of,
)
from outlive.conversation.projection import Transcript
from outlive.conversation.upcast import UPCASTS, typed, upcast

GOLDEN = Path(__file__).parents[2] / "golden" / "events"
FILES = sorted(GOLDEN.glob("v*/*.json"))
AT = "2030-01-02T03:04:05.000006Z"

PUBLIC_TYPES = """
    conversation.created message.sent turn.started step.started model.responded tool.requested tool.finished
    approval.requested approval.decided machine.attached machine.hibernated machine.woken machine.rebooted
    machine.rolled_back machine.lost subagent.started subagent.finished artifact.published turn.interrupted
    turn.recovered turn.finished conversation.archived machine.forked replay.started replay.parted
    wait.started turn.parked
    turn.paused turn.resumed
    budget.raised message.hurried message.withdrawn queue.ordered
    budget.raised
    model.fallback model.changed
    message.pinned message.unpinned compaction.requested compaction.finished
""".split()


def stored(file: Path) -> Event:
    """The event in a golden file, as a log would give it."""
    envelope = json.loads(file.read_text())
    data_json = json.dumps(envelope.pop("data"), separators=(",", ":"))
    return Event(**envelope, data_json=data_json, blob=None)


def all_subclasses(cls: type[EventData]) -> set[type[EventData]]:
    return {cls} | {below for child in cls.__subclasses__() for below in all_subclasses(child)}


def test_the_types_are_those_that_the_outside_relies_on() -> None:
    assert set(DURABLE) == set(PUBLIC_TYPES)


def test_every_class_of_event_is_in_the_union_under_its_own_type() -> None:
    ours = {cls for cls in all_subclasses(EventData) if cls.__module__.startswith("outlive.")}
    assert set(DURABLE.values()) == ours - {EventData}
    assert all(cls.type == type for type, cls in DURABLE.items())
    assert SEALS <= STEP_TYPES <= set(DURABLE)


def test_every_version_ever_written_has_its_file_and_leads_to_the_next() -> None:
    versions = {(type, v) for type, cls in DURABLE.items() for v in range(1, cls.v + 1)}
    assert {(file.stem, int(file.parent.name[1:])) for file in FILES} == versions
    assert set(UPCASTS) == {(type, v) for type, v in versions if v < DURABLE[type].v}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
class TestGoldenFile:
    def test_stands_where_its_type_and_version_say(self, file: Path) -> None:
        event = stored(file)
        assert (event.type, f"v{event.v}") == (file.stem, file.parent.name)
        assert is_id(event.id, "evt")

    def test_loads_upcasts_and_is_typed(self, file: Path) -> None:
        event = upcast(stored(file))
        assert event.v == DURABLE[event.type].v
        assert type(typed(stored(file))) is DURABLE[event.type]

    def test_is_what_we_write_today_if_it_is_of_today(self, file: Path) -> None:
        """A field that is added, dropped or renamed without a new version fails here."""
        event = upcast(stored(file))
        again = NewEvent(typed(event), event.at, event.id)
        assert json.loads(again.data_json) == event.data
        assert (again.type, again.data.v) == (event.type, event.v)

    def test_leaves_no_field_empty(self, file: Path) -> None:
        """What is null here would hide a change of its shape."""
        written = json.loads(file.read_text())["data"]
        assert not [name for name, value in written.items() if value in (None, [], {})]

    def test_folds(self, file: Path) -> None:
        event = stored(file)
        transcript = Transcript()
        if event.step is not None and event.type != "step.started":
            kind = "model" if event.type.startswith("model") else "tool"
            start = stored(GOLDEN / "v1" / "step.started.json")
            start_json = json.dumps({"kind": kind, "name": "any"})
            transcript.fold(start._replace(seq=event.seq - 1, step=event.step, data_json=start_json))
        transcript.fold(event)
        assert transcript.head == event.seq
        assert json.loads(json.dumps(transcript.to_json())) == transcript.to_json()


def test_every_type_is_an_item_or_left_out_on_purpose() -> None:
    shown = set()
    for type in DURABLE:
        if type not in ("model.responded", "tool.requested", "tool.finished", "compaction.finished"):
            transcript = Transcript()
            transcript.fold(stored(GOLDEN / f"v{DURABLE[type].v}" / f"{type}.json"))
            shown |= {type for _ in transcript.to_json()["items"]}
    assert set(DURABLE) - shown == {
        *("turn.started", "turn.parked", "message.hurried", "model.responded", "tool.requested", "tool.finished"),
        *("compaction.finished", "message.pinned", "message.unpinned"),  # they are said of the message
    }


@pytest.mark.parametrize("cls", DURABLE.values(), ids=lambda cls: cls.type)
def test_a_field_nobody_knows_is_refused(cls: type[EventData]) -> None:
    data = stored(GOLDEN / f"v{cls.v}" / f"{cls.type}.json").data
    cls.model_validate(data)
    with pytest.raises(ValidationError):
        cls.model_validate(data | {"surprise": 1})


def test_what_is_made_cannot_be_changed() -> None:
    message: BaseModel = MessageSent(message="msg", text="text")
    with pytest.raises(ValidationError):
        message.text = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["plain", "NUL \0", "lone \ud800", "ä\n\u2028🦀", ""])
def test_any_text_is_kept_in_a_form_that_every_database_can_hold(text: str) -> None:
    new = NewEvent(MessageSent(message="msg", text=text), AT)
    assert "\0" not in new.data_json
    assert len(new.data_json.splitlines()) == 1
    assert json.loads(new.data_json.encode())["text"] == text.replace("\ud800", "?")


def test_a_new_event_gets_an_id_unless_it_has_one() -> None:
    data = MachineLost(machine="mach")
    assert is_id(NewEvent(data, AT).id, "evt")
    assert NewEvent(data, AT).id != NewEvent(data, AT).id
    assert NewEvent(data, AT, EventId("evt_1")).id == "evt_1"


def test_a_delta_ends_where_its_text_does() -> None:
    delta = Delta(2, 10, TurnId("turn"), StepId("step"), 1, "model.delta", "four", None, None, AT, "agent")
    assert delta.end == 14


def test_search_finds_titles_messages_and_answers() -> None:
    assert text_of(ConversationCreated(title="title")) == "title"
    assert text_of(ConversationCreated()) is None
    assert text_of(MessageSent(message="msg", text="text")) == "text"
    assert text_of(ModelResponded(text="answer", model="demo:")) == "answer"
    assert text_of(MachineLost(machine="mach")) is None
