"""What comes over the wire, as plain frozen values. Fields we do not know are left out: a newer server works too."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlive.base import BrokenError

When = Literal["next", "now"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `seq` is None for what is only live: `model.delta`, `tool.output`, `step.rewound`.

    `position` is what to hand to `follow(after=...)` in order to go on right behind it.
    """

    id: str | None
    seq: int | None
    position: str | None
    conversation: str
    turn: str | None
    step: str | None
    attempt: int | None
    type: str
    v: int
    at: str
    actor: str
    data: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that is in the log. It joined the turn `turn_id`, or opened it."""

    message_id: str
    turn_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A message that waits for an answer. `text` is its beginning; `when` is what it asked for."""

    id: str
    seq: int
    text: str
    is_whole: bool
    attachments: int
    actor: str
    at: str
    when: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a person should read now: retries folded. `follow(after=position)` goes on from here."""

    conversation: str
    head: int
    position: str
    state: str
    items: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ConversationFacts:
    """A conversation as the server showed it when it was last asked."""

    id: str
    agent: str | None
    title: str | None
    environment: str | None
    model: str | None
    metadata: Mapping[str, Any]
    parent: Mapping[str, Any] | None
    state: str
    turn: str | None
    machine: str | None
    head: int
    created_by: str | None
    created_at: str | None
    updated_at: str | None
    archived_at: str | None
    subagent_of: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def decode(body: bytes | str) -> dict[str, Any]:
    """A JSON object, or `broken`."""
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        raise garbled() from None
    if not isinstance(decoded, dict):
        raise garbled()
    return decoded


def garbled() -> BrokenError:
    return BrokenError("api.garbled", "The server's answer is not what this client understands. Is it Outlive's API?")


def event_of(raw: Mapping[str, Any], position: str | None = None) -> Event:
    """`position` is the `id:` of the frame it came in."""
    try:
        return Event(
            id=raw.get("id"),
            seq=raw["seq"],
            position=position or raw.get("position"),
            conversation=raw["conversation"],
            turn=raw.get("turn"),
            step=raw.get("step"),
            attempt=raw.get("attempt"),
            type=raw["type"],
            v=raw.get("v", 1),
            at=raw["at"],
            actor=raw["actor"],
            data=raw["data"],
        )
    except KeyError:
        raise garbled() from None


def facts_of(raw: Mapping[str, Any]) -> ConversationFacts:
    try:
        return ConversationFacts(
            id=raw["id"],
            agent=raw.get("agent"),
            title=raw.get("title"),
            environment=raw.get("environment"),
            model=raw.get("model"),
            metadata=raw.get("metadata") or {},
            parent=raw.get("parent"),
            state=raw["state"],
            turn=raw.get("turn"),
            machine=raw.get("machine"),
            head=raw["head"],
            created_by=raw.get("created_by"),
            created_at=raw.get("created_at"),
            updated_at=raw.get("updated_at"),
            archived_at=raw.get("archived_at"),
            subagent_of=raw.get("subagent_of"),
        )
    except KeyError:
        raise garbled() from None


def follow_up_of(raw: Mapping[str, Any]) -> FollowUp:
    try:
        return FollowUp(**{name: raw[name] for name in FollowUp.__slots__})
    except KeyError:
        raise garbled() from None


def transcript_of(raw: Mapping[str, Any]) -> Transcript:
    try:
        return Transcript(raw["conversation"], raw["head"], raw["position"], raw["state"], tuple(items_of(raw)))
    except KeyError:
        raise garbled() from None


def items_of(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = page.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise garbled()
    return items
