"""Old events load in today's shape; what nobody knows is never guessed at."""

import json
from typing import Any

import pytest

from outlive.base import BrokenError, EventId
from outlive.conversation.events import DURABLE, Event, EventData, MachineLost
from outlive.conversation.upcast import Upcast, typed, upcast


class Said(EventData):
    """A type that has come a long way: v1 {words}, v2 {text}, v3 {text, loud}."""

    type = "test.said"
    v = 3
    text: str
    loud: bool


def _rename(data: dict[str, Any]) -> dict[str, Any]:
    return {"text": data["words"]}


def _judge(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "loud": data["text"].isupper()}


STEPS: dict[tuple[str, int], Upcast] = {("test.said", 1): _rename, ("test.said", 2): _judge}
KNOWN: dict[str, type[EventData]] = {"test.said": Said}


def event(type: str, v: int, data_json: str) -> Event:
    return Event(7, EventId("evt_1"), None, None, None, type, v, "2030", "prin", data_json, None)


def test_an_event_of_today_passes_untouched_and_unread() -> None:
    now = event("machine.lost", 1, "not even JSON")
    assert upcast(now) is now


@pytest.mark.parametrize(
    ("v", "data"), [(1, {"words": "HEY"}), (2, {"text": "HEY"}), (3, {"text": "HEY", "loud": True})]
)
def test_every_old_version_goes_through_all_that_come_after(v: int, data: dict[str, Any]) -> None:
    old = event("test.said", v, json.dumps(data))
    new = upcast(old, STEPS, KNOWN)
    assert new.data == {"text": "HEY", "loud": True}
    assert new == old._replace(v=3, data_json=new.data_json)


def test_a_version_that_nothing_leads_on_from_is_broken() -> None:
    with pytest.raises(BrokenError) as raised:
        upcast(event("test.said", 0, "{}"), STEPS, KNOWN)
    assert raised.value.code == "event.no_upcast"


def test_a_version_of_a_newer_outlive_says_to_upgrade() -> None:
    with pytest.raises(BrokenError, match="upgrade Outlive") as raised:
        upcast(event("machine.lost", DURABLE["machine.lost"].v + 1, "{}"))
    assert raised.value.code == "event.newer_version"


def test_a_type_of_a_newer_outlive_says_to_upgrade() -> None:
    with pytest.raises(BrokenError, match="upgrade Outlive") as raised:
        upcast(event("machine.cloned", 1, "{}"))
    assert raised.value.code == "event.unknown_type"


def test_a_typed_event_is_of_the_class_of_its_type() -> None:
    assert typed(event("machine.lost", 1, '{"machine":"mach_1"}')) == MachineLost(machine="mach_1")


@pytest.mark.parametrize("data_json", ["", "{", "[]", "{}", '{"machine":7}', '{"machine":"m","secret":"hunter2"}'])
def test_a_damaged_payload_is_broken_and_is_not_told(data_json: str) -> None:
    with pytest.raises(BrokenError) as raised:
        typed(event("machine.lost", 1, data_json))
    assert raised.value.code == "event.damaged"
    assert "hunter2" not in str(raised.value)
