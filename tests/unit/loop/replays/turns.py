"""Turns written by hand, for tests of replays."""

import json
from typing import Any

from outlive.base import EventId, StepId, TurnId
from outlive.conversation.events import Event

TURN = TurnId("turn_1")


class Writing:
    """A log that is being written."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def say(self, type: str, turn: str | None = TURN, step: str | None = None, **data: Any) -> None:
        seq = len(self.events) + 1
        at = f"2026-01-01T00:00:{seq:02}Z"
        self.events.append(
            Event(
                seq,
                EventId(f"evt_{seq}"),
                TurnId(turn) if turn else None,
                StepId(step) if step else None,
                1 if step else None,
                type,
                2 if type == "model.responded" else 1,
                at,
                "x",
                json.dumps(data),
                None,
            )
        )

    def message(self, text: str, turn: str = TURN) -> None:
        self.say("message.sent", turn, message=f"msg_{len(self.events)}", text=text, attachments=[], model=None)

    def begin(self, turn: str = TURN, model: str = "m") -> None:
        self.say("turn.started", turn, agent="coder", version=3, model=model)

    def answer(self, text: str, *calls: dict[str, Any], turn: str = TURN, cost: float | None = 0.5) -> None:
        step = f"step_{len(self.events)}"
        self.say("step.started", turn, step, kind="model", name="m")
        usage = {"input_tokens": 10, "output_tokens": 2, "cost_usd": cost}
        self.say(
            "model.responded",
            turn,
            step,
            text=text,
            tool_calls=[*calls],
            blocks=[],
            model="m",
            usage=usage,
            stop_reason="end_turn",
        )

    def result(self, call: str, output: str, turn: str = TURN, outcome: str = "finished") -> None:
        self.say("tool.finished", turn, call=call, effect="eff", outcome=outcome, output=output, exit_code=0, blob=None)

    def end(self, turn: str = TURN, outcome: str = "done") -> None:
        self.say("turn.finished", turn, outcome=outcome, reason=None)


def call(id: str, name: str = "shell", error: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments, "error": error}
