"""What is known of a race, and what its contestants have come to. Pure, and the port to the records.

Rule 1: a record says what is wanted (who runs, who was chosen); what happened is in the logs of the contestants.
Rule 2: all ids of a race are given by its own, so whoever goes on with it after a crash makes nothing twice.

    starting ─ all forks are made, all prompts sent ─▶ running ─ one is chosen ─▶ letting_go ─ nothing is left ─▶ chosen
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from outlive.base import (
    CheckpointId,
    ConflictError,
    ConversationId,
    InvalidError,
    MachineId,
    OperationId,
    PrincipalId,
    RaceId,
    derive,
)
from outlive.conversation.events import Event
from outlive.conversation.upcast import upcast

CONTESTANTS_LEAST, CONTESTANTS_MOST = 2, 8
PROMPT_LIMIT = 100_000  # characters

RaceState = Literal["starting", "running", "letting_go", "chosen"]


class Contestant(BaseModel):
    """None: as the conversation has it. `trouble`: why it could not be started, for good."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    agent: str | None = None
    trouble: str | None = None


class RaceSource(BaseModel):
    """What all copies are made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: MachineId
    checkpoint: CheckpointId


class Race(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: RaceId
    conversation: ConversationId
    at: int
    prompt: str
    owner: PrincipalId
    contestants: tuple[Contestant, ...]
    source: RaceSource | None = None  # None: the conversation has no machine; each makes its own when it needs one
    state: RaceState = "starting"
    chosen: ConversationId | None = None
    created_at: str
    changed_at: str

    @property
    def is_settled(self) -> bool:
        return self.state in ("running", "chosen")

    @property
    def conversations(self) -> list[ConversationId]:
        return [ConversationId(derive("conv", self.operation(place))) for place in range(len(self.contestants))]

    @property
    def losers(self) -> list[ConversationId]:
        return [each for each in self.conversations if each != self.chosen]

    def operation(self, place: int) -> OperationId:
        """What the fork of one contestant, its machine and its message are derived from."""
        return OperationId(derive("op", self.id, place + 1))


Decide = Callable[[Race], Race]


class RaceRecords(Protocol):
    async def create(self, race: Race) -> Race:
        """Put a new record; one with this id that is there already is returned as it is."""
        ...

    async def get(self, race: RaceId) -> Race:
        """`race.unknown` (not_found) if there is none."""
        ...

    async def change(self, race: RaceId, decide: Decide) -> Race:
        """Run `decide` (pure; refuses by raising) on the record inside one transaction; what is there then."""
        ...

    async def unsettled(self, *, limit: int) -> Sequence[Race]:
        """Those that somebody has to go on with, oldest first."""
        ...


# ── what becomes of a record ──


def started(race: Race, troubles: Mapping[int, str], now: str) -> Race:
    """All that could be started are."""
    if race.state != "starting":
        return race
    contestants = tuple(
        each.model_copy(update={"trouble": troubles.get(place)}) for place, each in enumerate(race.contestants)
    )
    return race.model_copy(update={"state": "running", "contestants": contestants, "changed_at": now})


def choose(race: Race, conversation: str, now: str) -> Race:
    """The choice is for good: the first one counts."""
    if conversation not in race.conversations:
        raise InvalidError("race.no_contestant", f"Race {race.id!r} has no contestant {conversation[:64]!r}.")
    if race.chosen == conversation:
        return race
    if race.chosen is not None:
        raise ConflictError("race.already_chosen", f"Race {race.id!r} is decided: {race.chosen!r} was chosen.")
    if race.state == "starting":
        raise ConflictError("race.starting", f"Race {race.id!r} is still being started; choose when it runs.")
    if (trouble := race.contestants[race.conversations.index(ConversationId(conversation))].trouble) is not None:
        raise ConflictError("race.not_started", f"This contestant could not be started ({trouble}); choose another.")
    return race.model_copy(update={"state": "letting_go", "chosen": conversation, "changed_at": now})


def let_go(race: Race, now: str) -> Race:
    """Nothing of the others is left."""
    return race if race.state != "letting_go" else race.model_copy(update={"state": "chosen", "changed_at": now})


# ── what the contestants have come to ──

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(slots=True)
class Result:
    """One contestant's own part of the log. `cost` is None where a step of it has no known price."""

    turn: str | None = None
    outcome: str | None = None
    reason: str | None = None
    answer: str = ""
    steps: int = 0
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    cost: float | None = 0.0

    def take(self, event: Event) -> None:
        match event.type:
            case "message.sent":
                self.turn, self.outcome, self.reason = event.turn, None, None
            case "model.responded":
                self.steps += 1
                data = upcast(event).data
                self.answer = data["text"] or self.answer
                self._count(data["usage"])
            case "compaction.finished":
                self._count(upcast(event).data["usage"])
            case "tool.finished":
                self.steps += 1
            case "turn.finished":
                data = upcast(event).data
                self.outcome, self.reason = data["outcome"], data["reason"]
            case _:
                pass

    def _count(self, usage: Mapping[str, Any]) -> None:
        for name in TOKENS:
            self.usage[name] += usage[name]
        cost = usage["cost_usd"]
        self.cost = None if cost is None or self.cost is None else self.cost + cost


def fold_result(events: Iterable[Event]) -> Result:
    result = Result()
    for event in events:
        result.take(event)
    return result
