"""Events placed as a log would place them, and live frames, for tests of what is made of them."""

from typing import Any

from outlive.base import StepId, TurnId
from outlive.conversation.events import (
    Delta,
    Event,
    EventData,
    ModelResponded,
    NewEvent,
    Rewound,
    StepStarted,
    ToolCall,
    ToolFinished,
    ToolRequested,
)
from outlive.conversation.projection import Transcript

TURN = TurnId("turn_1")
ONE, TWO = StepId("step_1"), StepId("step_2")
ANSWER = ModelResponded(text="Hello.", tool_calls=[ToolCall(id="c", name="shell", arguments={})], model="demo:")
REQUEST = ToolRequested(call="c", name="shell", arguments={"command": "ls"}, effect="eff_1")
DONE = ToolFinished(call="c", effect="eff_1", outcome="finished", output="a b", exit_code=0)
MODEL = StepStarted(kind="model", name="demo:")
TOOL = StepStarted(kind="tool", name="shell")


class Log:
    """Makes events as a log would place them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, data: EventData, step: StepId | None = None, attempt: int | None = None) -> Event:
        seq = len(self.events) + 1
        new = NewEvent(data, f"at-{seq}")
        event = Event(seq, new.id, TURN, step, attempt, data.type, data.v, new.at, "prin_1", new.data_json, None)
        self.events.append(event)
        return event

    def transcript(self) -> Transcript:
        transcript = Transcript()
        for event in self.events:
            transcript.fold(event)
        return transcript

    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.transcript().to_json()["items"]
        return items


def delta(text: str, offset: int, step: StepId = ONE, attempt: int = 1) -> Delta:
    return Delta(1, offset, TURN, step, attempt, "model.delta", text, None, None, "at", "agent")


def rewound(attempt: int, step: StepId = ONE) -> Rewound:
    return Rewound(TURN, step, attempt, "at", "agent")


def only(transcript: Transcript) -> dict[str, Any]:
    (item,) = transcript.to_json()["items"]
    assert isinstance(item, dict)
    return item
