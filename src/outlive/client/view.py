"""What should be on the screen now: a fold of followed events. Pure.

Rule 1: a step is shown once, where it first started. `step.rewound` takes back what was streamed; the event that seals
        the step replaces it.
Rule 2: what was streamed and never sealed was not said. It goes when its turn ends.
Rule 3: when no step is open the items equal those of the server's transcript, whatever of the stream was lost.

A view that begins in the middle (`follow(after=...)`) holds what came since; a step whose start it missed appears with
its seal.
"""

from typing import Any, Literal

from outlive.client.wire import Event

Json = dict[str, Any]
StepKind = Literal["answer", "tool", "compaction"]

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


class ShownStep:
    """A step as it stands."""

    def __init__(self, kind: StepKind, step: str) -> None:
        self.kind: StepKind = kind
        self.step = step
        self.attempt = 0
        self.attempts = 0
        self.state: Literal["open", "sealed", "abandoned"] = "open"
        self.seq: int | None = None
        self.at = ""
        self.result: Json = {}
        self._heard = 0  # the attempt whose live output is shown; ahead of `attempt` between a rewind and its start
        self._pieces: list[str] = []
        self._end = 0  # characters that the attempt streamed up to here, lost ones included

    @property
    def streamed(self) -> str:
        self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0]

    def start(self, kind: StepKind, attempt: int, at: str) -> None:
        self.kind, self.state, self.seq, self.at = kind, "open", None, at
        self.attempt = attempt
        self.attempts += 1
        self.result = {}
        self.forget(attempt)

    def forget(self, attempt: int) -> None:
        """Take back what was streamed; from now on `attempt` is heard."""
        self._heard, self._pieces, self._end = attempt, [], 0

    def rewind(self, attempt: int) -> None:
        if self._heard < attempt:
            self.forget(attempt)

    def add(self, attempt: int | None, offset: int | None, text: str) -> None:
        if attempt != self._heard:
            return
        offset = self._end if offset is None else offset
        if offset + len(text) <= self._end:
            return
        if offset > self._end:
            self._pieces.append(GAP)
        self._pieces.append(text[max(0, self._end - offset) :])
        self._end = offset + len(text)

    def seal(self, kind: StepKind, event: Event) -> None:
        data = {name: value for name, value in event.data.items() if name != "blocks"}  # that only the provider reads
        self.result = {**self.result, **data} if kind == self.kind else data
        self.kind, self.state, self.seq, self.at = kind, "sealed", event.seq, event.at
        self.attempt = event.attempt or self.attempt
        self.forget(self.attempt)

    def abandon(self) -> None:
        self.state = "abandoned"
        self.forget(self._heard)

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
            _LIVE[self.kind]: self.streamed,
            **self.result,
        }


class View:
    """Feed it every event of `follow`, in order; read it with `items`."""

    def __init__(self) -> None:
        self.position: str | None = None  # of the last event that was taken in
        self.head = 0
        self._items: list[Json | ShownStep] = []
        self._steps: dict[str, ShownStep] = {}
        self._open: dict[str, ShownStep] = {}

    def items(self) -> list[Json]:
        """What is to be shown, in order: messages, answers, tools and notes."""
        return [item.to_json() if isinstance(item, ShownStep) else item for item in self._items]

    def open_items(self) -> list[Json]:
        """The steps that are still going on."""
        return [step.to_json() for step in self._open.values()]

    def fold(self, event: Event) -> Json | None:
        """Take in one more event; returns the item that is complete with it, if one is."""
        self.position = event.position or self.position
        if event.seq is None:
            self._fold_live(event)
            return None
        if event.seq <= self.head:
            return None
        self.head = event.seq
        return self._fold_durable(event)

    def _fold_live(self, event: Event) -> None:
        step = self._open.get(event.step or "")
        if step is None:
            return
        if event.type == "step.rewound":
            step.rewind(event.attempt or 0)
        else:
            step.add(event.attempt, event.data.get("offset"), event.data.get("text", ""))

    def _fold_durable(self, event: Event) -> Json | None:
        match event.type:
            case "message.sent":
                return self._add_message(event)
            case "step.started":
                self._start(event)
            case "tool.requested":
                step = self._steps.get(event.step or "")
                if step is not None and step.kind == "tool":  # in a model step the answer itself lists the calls
                    step.result |= event.data
            case "model.responded":
                return self._seal(event, "answer")
            case "tool.finished":
                return self._seal(event, "tool")
            case "compaction.finished":
                return self._seal(event, "compaction")
            case "message.pinned" | "message.unpinned":
                self._pin(event.data.get("message"), is_pinned=event.type == "message.pinned")
            case "turn.finished":
                self._abandon()
                if event.data.get("outcome") != "done":
                    return self._note(event)
            case "turn.interrupted":
                self._abandon()
                return self._note(event)
            case "conversation.created" if event.data.get("parent") is not None:
                self._abandon()  # what was open in the parent goes on there, not here
                return self._note(event)
            case "message.withdrawn":
                self._withdraw(event.data.get("message"))
                return self._note(event)
            case type if type in _NOTES:
                return self._note(event)
            case _:
                pass  # `turn.started` says nothing that has to be shown; of a type we do not know we cannot tell
        return None

    def _add_message(self, event: Event) -> Json:
        item = {
            "kind": "message",
            "seq": event.seq,
            "at": event.at,
            "actor": event.actor,
            "message": event.data.get("message"),
            "text": event.data.get("text", ""),
            "attachments": event.data.get("attachments", []),
            "withdrawn": False,
            "pinned": False,
        }
        self._items.append(item)
        return item

    def _withdraw(self, message: object) -> None:
        for item in reversed(self._items):
            if isinstance(item, dict) and item["kind"] == "message" and item["message"] == message:
                item["withdrawn"], item["pinned"] = True, False
                return

    def _pin(self, message: object, *, is_pinned: bool) -> None:
        for item in self._items:
            if not isinstance(item, ShownStep) and item["kind"] == "message" and item["message"] == message:
                item["pinned"] = is_pinned

    def _note(self, event: Event) -> Json:
        item = {
            "kind": "note",
            "type": event.type,
            "seq": event.seq,
            "at": event.at,
            "actor": event.actor,
            "data": dict(event.data),
        }
        self._items.append(item)
        return item

    def _step(self, event: Event, kind: StepKind) -> ShownStep:
        id = event.step or ""
        step = self._steps.get(id)
        if step is None:
            step = self._steps[id] = ShownStep(kind, id)
            self._items.append(step)
        return step

    def _start(self, event: Event) -> None:
        kind = _KINDS.get(str(event.data.get("kind")), "tool")
        step = self._step(event, kind)
        step.start(kind, event.attempt or 1, event.at)
        if kind == "tool":
            step.result["name"] = event.data.get("name")
        self._open[step.step] = step

    def _seal(self, event: Event, kind: StepKind) -> Json:
        step = self._step(event, kind)
        step.seal(kind, event)
        self._open.pop(step.step, None)
        return step.to_json()

    def _abandon(self) -> None:
        for step in self._open.values():
            step.abandon()
        self._open.clear()
