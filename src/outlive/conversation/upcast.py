"""Old events in today's shape, for ever. Pure.

Rule 1: each function takes the data of one (type, version) to the next version. Once released it is never changed and
        never removed; today's shape is reached by going through all that come after.
Rule 2: an event of today's version passes untouched, without a look into its payload: that is the hot path.
Rule 3: the union is closed. What we do not know was written by a newer Outlive, and is not guessed at.

A payload that went to the object store is brought back before it comes here.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from outlive.base import BrokenError
from outlive.conversation.events import DURABLE, Event, EventData

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

_CACHE_WORDS = {"cache_read_input_tokens": "cache_read_tokens", "cache_creation_input_tokens": "cache_write_tokens"}


def _model_responded_1(data: dict[str, Any]) -> dict[str, Any]:
    """Calls may have been unreadable, answers have blocks, and what came from a cache is counted by names of ours."""
    usage = {_CACHE_WORDS.get(word, word): count for word, count in data["usage"].items()}
    return {
        **data,
        "tool_calls": [{**call, "error": None} for call in data["tool_calls"]],
        "blocks": [],
        "usage": {"cache_read_tokens": 0, "cache_write_tokens": 0, "cost_usd": None, **usage},
    }


def _approval_requested_1(data: dict[str, Any]) -> dict[str, Any]:
    """No step waited for it."""
    return {**data, "step": None, "effect": None, "tool": None, "arguments": None, "proposal": None}


def _approval_requested_2(data: dict[str, Any]) -> dict[str, Any]:
    """Nobody was asked for more of a budget."""
    return {**data, "budget": None}


def _subagent_started_1(data: dict[str, Any]) -> dict[str, Any]:
    """No step waited for it."""
    return {**data, "step": None, "detached": False, "machine": "same"}


def _turn_interrupted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Nobody wrote down what there was to see."""
    return {**data, "seen": None}


UPCASTS: dict[tuple[str, int], Upcast] = {
    ("approval.requested", 1): _approval_requested_1,
    ("approval.requested", 2): _approval_requested_2,
    ("model.responded", 1): _model_responded_1,
    ("subagent.started", 1): _subagent_started_1,
    ("turn.interrupted", 1): _turn_interrupted_1,
}


def upcast(
    event: Event,
    upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS,
    durable: Mapping[str, type[EventData]] = DURABLE,
) -> Event:
    """The same event in the version that we write today."""
    known = durable.get(event.type)
    if known is not None and known.v == event.v:
        return event
    if known is None:
        raise BrokenError("event.unknown_type", f"Event {event.id!r} is a {event.type!r}, unknown here: {_UPGRADE}")
    if event.v > known.v:
        raise BrokenError(
            "event.newer_version",
            f"Event {event.id!r} is version {event.v} of {event.type!r}; we know {known.v}: {_UPGRADE}",
        )
    data = event.data
    for version in range(event.v, known.v):
        step = upcasts.get((event.type, version))
        if step is None:
            raise BrokenError("event.no_upcast", f"Nothing leads on from version {version} of {event.type!r}.")
        data = step(data)
    return event._replace(v=known.v, data_json=json.dumps(data, separators=(",", ":")))


def typed(event: Event) -> EventData:
    """The payload, decoded and checked, as the class of its type."""
    now = upcast(event)
    try:
        return DURABLE[now.type].model_validate(now.data)
    except ValueError as error:  # no JSON, or (a ValidationError) not of this shape
        what = error.errors(include_input=False)[0]["loc"] if isinstance(error, ValidationError) else "JSON"
        raise BrokenError(
            "event.damaged", f"Event {event.id!r} is not a {event.type!r} of version {event.v}: see {what}."
        ) from error


_UPGRADE = "upgrade Outlive to read it."
