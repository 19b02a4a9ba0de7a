"""The transcript: what a person should read now, retries folded. Pure.

Rule 1: a step appears once, where its first attempt started. A new attempt starts it afresh in that place, and the
        event that seals the step replaces whatever was streamed.
Rule 2: what was streamed and never sealed was not said. It is shown while the attempt is open, and dropped when the
        turn ends without it or the conversation was forked away from it.
Rule 3: live frames only ever change a step that is open. So a transcript of the log alone equals one that was fed
        deltas and rewinds too, as soon as no step is open.

Folding goes on for ever: `fold` takes the next event or live frame, `head` says where to go on. Events come from the
beginning, in the order of their log, with their payload (one that went to the object store is brought back first).
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from outlive.base import StepId
from outlive.conversation.events import Delta, Event, Rewound
from outlive.conversation.upcast import upcast

State = Literal["open", "sealed", "abandoned"]
StepKind = Literal["answer", "tool", "compaction"]
Json = dict[str, Any]

GAP = "…"  # stands for live output that was lost on the way

_NOTES = frozenset(
    {
        "conversation.archived",
        "approval.requested",
        "approval.decided",
        "budget.raised",
        "compaction.requested",
        "wait.started",
        "model.changed",
        "model.fallback",
        "machine.attached",
        "machine.forked",
        "machine.hibernated",
        "machine.woken",
        "machine.rebooted",
        "machine.rolled_back",
        "machine.lost",
        "subagent.started",
        "subagent.finished",
        "artifact.published",
        "replay.started",
        "replay.parted",
        "turn.interrupted",
        "turn.paused",
        "turn.resumed",
        "turn.recovered",
        "queue.ordered",
    }
)


@dataclass(slots=True)
class Streamed:
    """The live output of one attempt, as far as it came through."""

    pieces: list[str] = field(default_factory=list)
    end: int = 0  # characters that the attempt streamed up to here, those that were lost included

    def add(self, delta: Delta) -> None:
        if delta.end <= self.end:
            return
        if delta.offset > self.end:
            self.pieces.append(GAP)
        self.pieces.append(delta.text[max(0, self.end - delta.offset) :])
        self.end = delta.end

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


_BLANK: dict[StepKind, Json] = {
    "answer": {"text": "", "tool_calls": [], "model": None, "usage": None, "stop_reason": None},
    "tool": {
        "call": None,
        "name": None,
        "arguments": None,
        "effect": None,
        "outcome": None,
        "output": "",
        "exit_code": None,
        "blob": None,
    },
    "compaction": {
        "outcome": None,
        "summary": "",
        "through": None,
        "parts": None,
        "before": None,
        "after": None,
        "model": None,
        "usage": None,
        "reason": None,
    },
}
_LIVE: dict[StepKind, str] = {"answer": "text", "tool": "output", "compaction": "summary"}  # where live output goes
_KINDS: dict[str, StepKind] = {"model": "answer", "compaction": "compaction"}  # of steps; all others are tools


@dataclass(slots=True)
class Step:
    """A step as it stands."""

    kind: StepKind
    step: StepId
    attempt: int = 0
    attempts: int = 0  # that have started
    at: str = ""  # of the seal; until then, of the start
    state: State = "open"
    seq: int | None = None  # of the seal
    result: Json = field(default_factory=dict)  # what durable events say; the rest is as in `_BLANK`
    is_dead: bool = False  # a newer attempt has started, as we were told; it is still to come here
    streamed: Streamed = field(default_factory=Streamed)

    def start(self, kind: StepKind, attempt: int, at: str) -> None:
        self.kind, self.state, self.seq, self.at = kind, "open", None, at
        self.attempt, self.is_dead = attempt, False
        self.attempts += 1
        self.result, self.streamed = {}, Streamed()

    def seal(self, kind: StepKind, event: Event, data: Json) -> None:
        """The whole result. Of what was there before only the tool's request stays: the seal does not repeat it."""
        self.result = {**self.result, **data} if kind == self.kind else data
        self.kind, self.state, self.seq, self.at = kind, "sealed", event.seq, event.at
        self.streamed = Streamed()

    def to_json(self) -> Json:
        return {
            "kind": self.kind,
            "step": self.step,
            "attempt": self.attempt,
            "attempts": self.attempts,
            "state": self.state,
            "seq": self.seq,
            "at": self.at,
            **_BLANK[self.kind],
            _LIVE[self.kind]: self.streamed.text(),
            **self.result,
        }


class Transcript:
    """Items in the order a person reads them."""

    __slots__ = ("_items", "_open", "_steps", "head")

    def __init__(self) -> None:
        self.head = 0  # the seq of the newest event that was folded
        self._items: list[Json | Step] = []
        self._steps: dict[StepId, Step] = {}
        self._open: dict[StepId, Step] = {}

    def to_json(self) -> Json:
        return {"items": [item.to_json() if isinstance(item, Step) else item for item in self._items]}

    def fold(self, happened: Event | Delta | Rewound) -> None:
        """Take in one more event or live frame. An event that was folded before changes nothing."""
        if isinstance(happened, Delta):
            self._stream(happened)
        elif isinstance(happened, Rewound):
            self._rewind(happened)
        elif happened.seq > self.head:
            self._fold_event(upcast(happened))
            self.head = happened.seq

    def _stream(self, delta: Delta) -> None:
        step = self._open.get(delta.step)
        if step is not None and step.attempt == delta.attempt and not step.is_dead:
            step.streamed.add(delta)

    def _rewind(self, rewound: Rewound) -> None:
        step = self._open.get(rewound.step)
        if step is not None and step.attempt < rewound.attempt:
            step.streamed, step.is_dead = Streamed(), True

    def _fold_event(self, event: Event) -> None:
        match event.type:
            case "message.sent":
                self._add_message(event)
            case "step.started":
                self._start(event)
            case "model.responded":
                # What only the provider reads is not for people.
                self._seal(event, "answer", {name: value for name, value in event.data.items() if name != "blocks"})
            case "tool.requested":
                self._request(event)
            case "tool.finished":
                self._seal(event, "tool", event.data)
            case "compaction.finished":
                self._seal(event, "compaction", event.data)
            case "message.pinned" | "message.unpinned":
                self._pin(event.data["message"], is_pinned=event.type == "message.pinned")
            case "turn.finished":
                self._abandon()
                if (data := event.data)["outcome"] != "done":
                    self._note(event, data)
            case "turn.interrupted":
                self._abandon()
                self._note(event, event.data)
            case "conversation.created":
                if (data := event.data)["parent"] is not None:
                    self._abandon()  # what was open in the parent goes on there, not here
                    self._note(event, data)
            case "message.withdrawn":
                self._withdraw((data := event.data)["message"])
                self._note(event, data)
            case type if type in _NOTES:
                self._note(event, event.data)
            case _:
                pass  # turn.started, turn.parked, message.hurried: what stands around them says as much

    def _add_message(self, event: Event) -> None:
        data = event.data
        self._items.append(
            {
                "kind": "message",
                "seq": event.seq,
                "at": event.at,
                "actor": event.actor,
                "message": data["message"],
                "text": data["text"],
                "attachments": data["attachments"],
                "withdrawn": False,
                "pinned": False,
            }
        )

    def _withdraw(self, message: str) -> None:
        """It was said, and taken back: the model is not told."""
        for item in reversed(self._items):
            if isinstance(item, dict) and item["kind"] == "message" and item["message"] == message:
                item["withdrawn"], item["pinned"] = True, False
                return

    def _pin(self, message: str, *, is_pinned: bool) -> None:
        for item in self._items:
            if not isinstance(item, Step) and item["kind"] == "message" and item["message"] == message:
                item["pinned"] = is_pinned

    def _note(self, event: Event, data: Json) -> None:
        self._items.append(
            {
                "kind": "note",
                "type": event.type,
                "seq": event.seq,
                "at": event.at,
                "actor": event.actor,
                "data": data,
            }
        )

    def _start(self, event: Event) -> None:
        data = event.data
        assert event.step is not None
        assert event.attempt is not None
        kind = _KINDS.get(data["kind"], "tool")
        step = self._steps.get(event.step)
        if step is None:
            step = self._steps[event.step] = Step(kind, event.step)
            self._items.append(step)
        step.start(kind, event.attempt, event.at)
        if kind == "tool":
            step.result["name"] = data["name"]
        self._open[event.step] = step

    def _request(self, event: Event) -> None:
        assert event.step is not None
        step = self._steps[event.step]
        if step.kind == "tool":  # in a model step the answer itself lists the calls
            step.result |= event.data

    def _seal(self, event: Event, kind: StepKind, data: Json) -> None:
        assert event.step is not None
        step = self._steps[event.step]
        step.seal(kind, event, data)
        self._open.pop(event.step, None)

    def _abandon(self) -> None:
        for step in self._open.values():
            step.state = "abandoned"
            step.streamed = Streamed()
        self._open.clear()
