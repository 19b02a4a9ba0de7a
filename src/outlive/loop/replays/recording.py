"""What tools came to in a turn, and which calls of another run of it that answers. Pure.

Two calls are the same if they have the same name and arguments, however those are written. The n-th time a replay makes
a call it gets the result that the n-th such call had. The first call without one is where the two part; after it
nothing is answered, since the world of the recording went another way.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.base import TurnId
from outlive.conversation.events import Event
from outlive.loop.tools.port import ToolResult

Same = tuple[str, str]
"""What two calls have in common that are the same: the name, and the arguments in one way of writing."""


@dataclass(frozen=True, slots=True)
class Recorded:
    same: Same
    result: ToolResult | None  # None: nobody waited for it


def same_of(call: Mapping[str, Any]) -> Same:
    """`call`: as an answer has it. Arguments that could not be read are compared by what was wrong with them."""
    arguments = json.dumps(call["arguments"], sort_keys=True, separators=(",", ":"))
    return str(call["name"]), f"{arguments}{call.get('error') or ''}"


def calls_of(events: Iterable[Event], turn: TurnId | str) -> list[dict[str, Any]]:
    """All calls of the turn, in the order of its answers."""
    answers = (event for event in events if event.type == "model.responded" and event.turn == turn)
    return [call for event in answers for call in event.data["tool_calls"]]


def recording_of(events: Iterable[Event], turn: TurnId | str) -> list[Recorded]:
    """What every call of the turn came to, in the order of its answers."""
    recorded: list[Recorded] = []
    waiting: dict[str, deque[int]] = defaultdict(deque)  # id of a call of the newest answer -> its places
    for event in events:
        if event.turn != turn:
            continue
        if event.type == "model.responded":
            waiting.clear()
            for call in event.data["tool_calls"]:
                waiting[call["id"]].append(len(recorded))
                recorded.append(Recorded(same_of(call), None))
        elif event.type == "tool.finished" and waiting[(data := event.data)["call"]]:
            place = waiting[data["call"]].popleft()
            result = ToolResult(data["outcome"], data["output"], data["exit_code"], data["blob"])
            recorded[place] = Recorded(recorded[place].same, result)
    return recorded


def answered(recording: Iterable[Recorded], calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
    """The results of the first of `calls`, up to the one at which they part from the recording."""
    left: dict[Same, deque[ToolResult | None]] = defaultdict(deque)
    for each in recording:
        left[each.same].append(each.result)
    results: list[ToolResult] = []
    for call in calls:
        queue = left[same_of(call)]
        result = queue.popleft() if queue else None
        if result is None:
            break
        results.append(result)
    return results
