"""Answering the calls of a replay: for the step that would run one.

Everything follows from two logs: what the replay has called so far, and the recording. So whoever comes after a crash
finds the same answer, and a replay cannot do anything twice.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from outlive.base import ConversationId, TurnId
from outlive.conversation.conversations import PAGE, Conversations
from outlive.conversation.events import Event, ReplayParted
from outlive.loop.plan import Finish
from outlive.loop.replays.recording import Recorded, answered, calls_of, recording_of
from outlive.loop.state import Call, LastAnswer
from outlive.loop.tools.port import ToolResult

RECORDINGS_LIMIT = 8  # kept in memory
PARTED = (
    "The replay parts from its recording here. Nothing more was done: replay it with `execute` for that "
    "(`--execute` on the command line)."
)
_ALONE = (
    "[This is a replay on a machine of its own: what the calls before this one did was only told from a recording, and "
    "is not in it.]"
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a replay says to one call: a recorded result; or, where the two have parted, what is to be said about that,
    and the end of the turn (if somebody has spoken meanwhile, `result` instead: they get an answer). With neither, the
    call goes the way that every call goes."""

    result: ToolResult | None = None
    parted: ReplayParted | None = None
    finish: Finish | None = None
    is_first: bool = False  # of those that are really done

    def told(self, result: ToolResult) -> ToolResult:
        """What came of a call that was really done, as the model is told."""
        return replace(result, output=f"{result.output}\n{_ALONE}".lstrip()) if self.is_first else result


def replay_of(events: Sequence[Event], turn: TurnId) -> dict[str, Any] | None:
    """What the turn, which is the last one, is a replay of; None: it is none. Its beginning says so."""
    for event in reversed(events):
        if event.type == "replay.started" and event.turn == turn:
            return event.data
        if event.type in ("turn.finished", "conversation.created"):
            return None
    return None


class Replays:
    """Recordings never change, so the last few are kept."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._recordings: OrderedDict[tuple[str, str], list[Recorded]] = OrderedDict()

    async def answer(self, events: Sequence[Event], turn: TurnId, answer: LastAnswer, due: Call) -> Answered | None:
        """For the call `due` of the newest `answer` in `events`. None: the turn is no replay."""
        replay = replay_of(events, turn)
        if replay is None:
            return None
        calls = calls_of(events, turn)
        place = len(calls) - len(answer.calls) + due.n - answer.n - 1
        results = answered(await self._recording(replay), calls)
        if place < len(results):
            return Answered(results[place])
        first = calls[len(results)]
        is_done = bool(replay["execute"])
        parted = ReplayParted(call=first["id"], name=first["name"], answered=len(results), execute=is_done)
        if not is_done:
            return Answered(ToolResult("rejected", PARTED), parted, Finish(outcome="done", reason=PARTED))
        return Answered(parted=parted, is_first=place == len(results))

    async def _recording(self, replay: dict[str, Any]) -> list[Recorded]:
        key = (replay["conversation"], replay["turn"])
        if key not in self._recordings:
            events = await read_between(
                self._conversations, ConversationId(replay["conversation"]), replay["first"], replay["last"]
            )
            self._recordings[key] = recording_of(events, replay["turn"])
            while len(self._recordings) > RECORDINGS_LIMIT:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        return self._recordings[key]


async def read_between(
    conversations: Conversations, conversation: ConversationId, first: int, last: int
) -> list[Event]:
    """The events from `first` to `last`, whole."""
    events: list[Event] = []
    while first <= last and (page := await conversations.read(conversation, first - 1, min(PAGE, last - first + 1))):
        events += page
        first = page[-1].seq + 1
    return events
