"""Which turn is meant, and what of it is run again. Pure: from the events of a conversation, in order."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from outlive.base import ConflictError, StepId, TurnId
from outlive.conversation.events import Event, MessageSent
from outlive.loop.follow_ups import moved


@dataclass(slots=True)
class Turn:
    """One turn, as far as its replay has to know it."""

    id: TurnId
    first: int
    last: int = 0  # the event that ended it; 0: it has not ended
    bound: dict[str, object] | None = None  # what turn.started says
    messages: list[tuple[int, MessageSent]] = field(default_factory=list)
    starts: dict[StepId | None, int] = field(default_factory=dict)
    answer: int | None = None  # where the attempt began that became the first answer

    @property
    def asked(self) -> list[MessageSent]:
        """The messages that its first answer has seen."""
        return [message for seq, message in self.messages if self.answer is None or seq < self.answer]

    @property
    def left_out(self) -> int:
        return len(self.messages) - len(self.asked)


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """The turns of a conversation in the order in which they began."""
    turns: dict[TurnId, Turn] = {}
    for event in events:
        if event.turn is None:
            continue
        turn = turns.setdefault(event.turn, Turn(event.turn, event.seq))
        match event.type:
            case "message.sent":
                turn.messages.append((event.seq, MessageSent.model_validate(event.data)))
            case "message.withdrawn":
                _withdraw(turns.values(), event.data["message"])
            case "queue.ordered":
                _order(turn, event.data["order"])
            case "turn.started":
                turn.bound = event.data
            case "step.started":
                turn.starts[event.step] = event.seq
            case "model.responded" if turn.answer is None:
                turn.answer = turn.starts.get(event.step, event.seq)
            case "turn.finished":
                turn.last = event.seq
            case _:
                pass
    return [*turns.values()]


def _withdraw(turns: Iterable[Turn], message: str) -> None:
    for turn in turns:
        turn.messages = [each for each in turn.messages if each[1].message != message]


def _order(turn: Turn, order: list[str]) -> None:
    places = moved({message.message: seq for seq, message in turn.messages}, order)
    turn.messages = sorted(
        ((places.get(message.message, seq), message) for seq, message in turn.messages), key=lambda each: each[0]
    )


def choose(turns: Iterable[Turn], at: int | None) -> Turn:
    """The turn that event `at` belongs to, or the last one that had ended by then; without `at` the last that ended."""
    ended = [turn for turn in turns if turn.last]
    if at is not None:
        holding = [turn for turn in turns if turn.first <= at and (not turn.last or at <= turn.last)]
        ended = [turn for turn in ended if turn.last <= at]
        if holding and not holding[-1].last:
            raise ConflictError(
                "replay.turn_open", f"The turn of event {at} has not ended: only what is over is replayed."
            )
        ended = holding[-1:] or ended
    if not ended:
        raise ConflictError("replay.no_turn", "No turn has ended here yet: there is nothing to replay.")
    turn = ended[-1]
    if turn.bound is None or not turn.asked:
        raise ConflictError(
            "replay.no_message", f"Turn {turn.id!r} was not begun by a message of its own: replay another one."
        )
    return turn
