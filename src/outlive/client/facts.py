"""What both forms of a conversation (async and sync) show of it: the facts as last heard from the server."""

from collections.abc import Mapping
from typing import Any

from outlive.client.wire import ConversationFacts


class ConversationShown:
    """Read-only facts; `refresh()` asks the server again."""

    def __init__(self, facts: ConversationFacts) -> None:
        self._facts = facts

    @property
    def facts(self) -> ConversationFacts:
        return self._facts

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def agent(self) -> str | None:
        return self.facts.agent

    @property
    def title(self) -> str | None:
        return self.facts.title

    @property
    def environment(self) -> str | None:
        return self.facts.environment

    @property
    def model(self) -> str | None:
        return self.facts.model

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.facts.metadata

    @property
    def parent(self) -> Mapping[str, Any] | None:
        """`{"conversation", "at"}` of a fork."""
        return self.facts.parent

    @property
    def subagent_of(self) -> Mapping[str, Any] | None:
        """`{"conversation", "turn", "step", ...}` of whoever began it, if it is a subagent."""
        return self.facts.subagent_of

    @property
    def state(self) -> str:
        """idle, running, waiting or failed."""
        return self.facts.state

    @property
    def turn(self) -> str | None:
        return self.facts.turn

    @property
    def machine_id(self) -> str | None:
        return self.facts.machine

    @property
    def head(self) -> int:
        """The seq of the newest event."""
        return self.facts.head

    @property
    def created_at(self) -> str | None:
        return self.facts.created_at

    @property
    def updated_at(self) -> str | None:
        return self.facts.updated_at

    @property
    def archived_at(self) -> str | None:
        return self.facts.archived_at

    @property
    def is_archived(self) -> bool:
        return self.facts.archived_at is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state} head={self.head} title={self.title!r}>"
