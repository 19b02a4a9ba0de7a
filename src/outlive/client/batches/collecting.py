"""What came of one item, from the events of its conversation. Pure.

Only the turn of the batch's own message counts: what people say there later is theirs.
"""

from dataclasses import dataclass, field
from typing import Any

from outlive.base import OutliveError
from outlive.client.batches.plan import Line, Task
from outlive.client.wire import Event

_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(slots=True)
class Collected:
    conversation: str | None
    turn: str | None = None
    answer: str = ""
    outcome: str | None = None
    """How the turn ended; None while it goes on; `refused` if the server would not begin it."""
    reason: str | None = None
    question: str | None = None
    """What a person was asked and has not answered."""
    usage: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    cost: float | None = 0.0
    ended_at: str | None = None

    @classmethod
    def refused(cls, error: OutliveError, conversation: str | None) -> "Collected":
        return cls(conversation, outcome="refused", reason=f"{error.message} ({error.code})")

    def take(self, event: Event) -> None:
        if event.type == "message.sent" and self.turn is None:
            self.turn = event.turn
        if event.turn != self.turn or self.turn is None or self.outcome is not None:
            return
        data = event.data
        match event.type:
            case "model.responded":
                self.answer = str(data.get("text", ""))
                self._add(data.get("usage") or {})
            case "compaction.finished":
                self._add(data.get("usage") or {})
            case "approval.requested":
                self.question = str(data.get("question", ""))
            case "approval.decided":
                self.question = None
            case "turn.finished":
                self.outcome, self.reason, self.ended_at = str(data.get("outcome")), data.get("reason"), event.at
            case _:
                pass

    def _add(self, usage: dict[str, Any]) -> None:
        for name in _TOKENS:
            self.usage[name] += int(usage.get(name) or 0)
        cost = usage.get("cost_usd")
        self.cost = None if cost is None or self.cost is None else self.cost + float(cost)  # unknown is not free

    def line(self, task: Task) -> Line:
        """As it stands in the record."""
        line: Line = {
            "item": task.item.name,
            "key": task.item.key,
            "attempt": task.attempt,
            "conversation": self.conversation,
            "turn": self.turn,
            "outcome": self.outcome or "waiting",
            "answer": self.answer,
            "usage": dict(self.usage),
            "cost": None if self.cost is None else round(self.cost, 8),
        }
        told = {"reason": self.reason, "question": self.question, "ended_at": self.ended_at}
        return line | {name: value for name, value in told.items() if value is not None}
