"""The messages that wait for an answer: which they are, and what may still be done with them. Pure.

Rule 1: a message waits until an answer is asked for (`step.started` of a model step), and not a moment longer: from
        then on the model may have been told. Whoever withdraws or reorders decides at one moment of the log, and
        appends there or not at all (`Append.expect`): of that and the taking, one comes first, and the other sees it.
Rule 2: what is so already changes nothing, and is no error: a message can be withdrawn twice.
Rule 3: what a turn was opened for is not taken away from it: then it is the turn that is to be stopped. Nor is the last
        message of those that ended what a call waited for: the model is told that there is one.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from outlive.base import ConflictError, ConversationId, InvalidError, NotFoundError
from outlive.conversation.events import Event, EventData, MessageWithdrawn, QueueOrdered
from outlive.conversation.upcast import upcast
from outlive.loop.fold import TurnFold
from outlive.loop.state import TurnState, Waiting

TEXT_SHOWN = 500  # characters of a message in a list; the log has it whole
ORDER_LIMIT = 1_000  # messages in one order

When = Literal["next", "now"]


class FollowUp(NamedTuple):
    """A message that waits. `text` is its beginning."""

    id: str
    seq: int
    text: str
    is_whole: bool
    attachments: int
    actor: str
    at: str
    when: When


class QueueFold:
    """Takes the events of a conversation one by one, from the first."""

    def __init__(self, conversation: ConversationId) -> None:
        self._fold = TurnFold(conversation)
        self._sent: dict[str, Event] = {}  # the messages that wait
        self._known: set[str] = set()
        self._withdrawn: set[str] = set()
        self._ended: dict[str, str] = {}  # a step of the newest answer, or its approval -> when it waited no more

    @property
    def seq(self) -> int:
        return self._fold.seq

    def state(self) -> TurnState:
        return self._fold.state()

    def take(self, event: Event) -> None:
        if event.seq <= self.seq:
            return
        self._fold.take(event)
        match event.type:
            case "message.sent":
                message = upcast(event).data["message"]
                self._known.add(message)
                self._sent[message] = event
            case "message.withdrawn":
                self._withdrawn.add(upcast(event).data["message"])
            case "model.responded":
                self._ended = {}
            case "tool.requested" if event.step is not None:
                self._ended.setdefault(event.step, event.at)
            case "approval.decided":
                self._ended.setdefault(upcast(event).data["approval"], event.at)
            case "step.started" | "turn.finished" | "conversation.created" if self._sent:
                waiting = {each.message for each in self.state().queue}
                self._sent = {message: sent for message, sent in self._sent.items() if message in waiting}
            case _:
                pass

    def queue(self) -> list[FollowUp]:
        """What waits, in the order in which the model will be told."""
        return [_shown(each, self._sent[each.message]) for each in self.state().queue if each.message in self._sent]

    def withdraw(self, message: str) -> EventData | None:
        """What is written to withdraw it; None: it was withdrawn before."""
        if message in self._withdrawn:
            return None
        state = self.state()
        waiting = {each.message: each for each in state.queue}
        if message not in waiting:
            if message in self._known:
                raise ConflictError(
                    "message.taken", f"{message!r} waits no more: an answer was asked for it, or its turn was stopped."
                )
            raise NotFoundError("message.not_found", f"There is no message {message!r} in this conversation.")
        if waiting[message].is_hurried:
            raise ConflictError(
                "message.hurried", f"{message!r} asked to be taken at once, and something was stopped for it."
            )
        if len(waiting) == 1 and state.turn is not None and not state.turn.asked_at:
            raise ConflictError(
                "message.opens_turn", f"{message!r} is all that its turn is about: interrupt the turn instead."
            )
        if len(state.waiting) == 1 and self._has_ended_waiting(state):
            raise ConflictError(
                "message.taken", f"{message!r} ended what its turn waited for, and the model is told so: send another."
            )
        return MessageWithdrawn(message=message)

    def _has_ended_waiting(self, state: TurnState) -> bool:
        """Whether a message did, for a call of the newest answer: not a person's decision, nor the time."""
        calls = state.turn.answer.calls if state.turn is not None and state.turn.answer is not None else ()
        holds = {call.step: call.hold for call in calls if call.hold is not None and call.hold.yields}
        return any(
            self._ended.get(ended or "", hold.until) < hold.until
            for step, hold in holds.items()
            for ended in (step, hold.approval)
            if hold.decision not in ("approve", "deny")
        )

    def order(self, order: Sequence[str]) -> EventData | None:
        """What is written to put them in this order; None: they are."""
        present = [each.message for each in self.state().queue]
        if len(set(order)) < len(order):
            raise InvalidError("queue.doubled", "The order names a message twice.")
        if set(order) != set(present):
            raise ConflictError(
                "queue.changed",
                "The order has to name all messages that wait, and no other: look at them, then decide."
                if present
                else "No message waits any more: the model has been told of all, or they were withdrawn.",
                order=tuple(present[:ORDER_LIMIT]),
            )
        return None if list(order) == present else QueueOrdered(order=[*order])


def moved(places: Mapping[str, int], order: Sequence[str]) -> dict[str, int]:
    """Where messages stand after they were put in `order`: they change places with each other, and with nothing
    else."""
    known = [message for message in order if message in places]
    return dict(zip(known, sorted(places[message] for message in known), strict=True))


def _shown(waiting: Waiting, sent: Event) -> FollowUp:
    data = upcast(sent).data
    text: str = data["text"]
    return FollowUp(
        id=waiting.message,
        seq=waiting.seq,
        text=text[:TEXT_SHOWN],
        is_whole=len(text) <= TEXT_SHOWN,
        attachments=len(data["attachments"]),
        actor=sent.actor,
        at=sent.at,
        when="now" if waiting.is_hurried else "next",
    )
