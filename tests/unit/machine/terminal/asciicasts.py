"""A strict reader of asciicast v3, written from the format's documentation (docs.asciinema.org/manual/asciicast/v3).

It refuses more than players do: whatever it takes, each of them takes.
"""

import json
from decimal import Decimal
from typing import Any, NamedTuple

HEADER_KEYS = {"version", "term", "timestamp", "idle_time_limit", "command", "title", "env", "tags"}
TERM_KEYS = {"cols", "rows", "type", "version", "theme"}


class Event(NamedTuple):
    at: Decimal  # seconds since the beginning
    code: str
    data: str


class Cast(NamedTuple):
    header: dict[str, Any]
    events: list[Event]

    def of(self, code: str) -> list[str]:
        return [event.data for event in self.events if event.code == code]


def read_cast(content: bytes) -> Cast:
    text = content.decode("utf-8", "strict")
    assert text.endswith("\n")
    first, *rest = text[:-1].split("\n")
    header = json.loads(first)
    _check_header(header)
    at = Decimal(0)
    events: list[Event] = []
    for line in rest:
        if line.startswith("#"):
            continue
        event = json.loads(line, parse_float=Decimal)
        assert isinstance(event, list)
        interval, code, data = event
        assert isinstance(interval, Decimal)
        assert interval >= 0
        assert isinstance(data, str)
        _check_event(code, data)
        assert not events or events[-1].code != "x", "the exit status is the last event"
        at += interval
        events.append(Event(at, code, data))
    return Cast(header, events)


def _check_header(header: Any) -> None:
    assert isinstance(header, dict)
    assert header["version"] == 3
    assert set(header) <= HEADER_KEYS
    term = header["term"]
    assert set(term) <= TERM_KEYS
    assert all(type(term[key]) is int and 0 < term[key] < 65536 for key in ("cols", "rows"))
    assert type(header.get("timestamp", 0)) is int
    assert all(isinstance(header.get(key, ""), str) for key in ("command", "title"))


def _check_event(code: str, data: str) -> None:
    assert code in ("o", "i", "m", "r", "x"), f"unknown code {code!r}"
    data.encode("utf-8", "strict")  # no half of a surrogate pair
    if code == "r":
        cols, rows = data.split("x")
        assert 0 < int(cols) < 65536
        assert 0 < int(rows) < 65536
    if code == "x":
        assert str(int(data)) == data
