"""Whose subagent a conversation is, how many there may be, and what came of one. Pure.

Rule 1: the ids of a subagent have the digits of the step that began it: conversation, turn, machine. A step that is
        tried again finds the same one.
Rule 2: what the first event of a log says about this (`metadata.subagent`) counts only if the conversation's own id
        follows from that step: nobody can write it there who is not the loop, and a fork of a subagent is none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from outlive.base import ConversationId, OperationId, StepId, TurnId, derive
from outlive.conversation.events import Event
from outlive.loop.state import Child, LastAnswer

TOOL = "subagent"
DEPTH = 3
OPEN = (8, 3, 1)
"""That one conversation may have open at a time: one that people began, its subagents, and theirs. So there are never
more than 8 + 24 + 24 under one that people began, and no two of them have to agree on a number."""

Kind = Literal["same", "fork", "new"]


class Link(BaseModel):
    """The step whose subagent it is. `start` and `attempt`: of the step when it began it, for live output."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    conversation: ConversationId
    turn: TurnId
    step: StepId
    call: str
    start: int
    attempt: int
    detached: bool
    machine: Kind
    depth: int


class Ended(NamedTuple):
    """How the turn of a subagent ended, and the last that it said in it."""

    outcome: str
    reason: str | None
    text: str


def operation_of(step: StepId) -> OperationId:
    return OperationId(derive("op", step))


def child_of(step: StepId) -> ConversationId:
    return ConversationId(derive("conv", step))


def turn_of(child: ConversationId) -> TurnId:
    """The turn that it was begun for. Later ones are somebody else's."""
    return TurnId(derive("turn", child))


def link_of(conversation: ConversationId, metadata: Mapping[str, JsonValue]) -> Link | None:
    if TOOL not in metadata:
        return None
    try:
        link = Link.model_validate(metadata[TOOL])
    except ValidationError:
        return None
    return link if child_of(link.step) == conversation else None


def link_in(conversation: ConversationId, events: Sequence[Event]) -> Link | None:
    """As the first event of its log says."""
    if not events or events[0].type != "conversation.created":
        return None
    return link_of(conversation, events[0].data["metadata"])


def refusal_of(link: Link | None, children: Iterable[Child], answer: LastAnswer | None, step: StepId) -> str | None:
    """Why this step may not begin one. Calls before it in the same answer that are about to begin one count too, so
    that it does not matter in which order they run."""
    depth = link.depth if link is not None else 0
    if depth >= DEPTH:
        return f"Subagents may be {DEPTH} deep, and this is one at that depth: do it yourself."
    calls = answer.calls if answer is not None else ()
    place = next((call.n for call in calls if call.step == step), 0)
    before = {child_of(call.step) for call in calls if call.name == TOOL and call.outcome is None and call.n < place}
    is_open = ({child.conversation for child in children} | before) - {child_of(step)}
    if len(is_open) >= OPEN[depth]:
        return f"There are {len(is_open)} subagents of this conversation at work, which is the limit: wait for one."
    return None


def ending_of(events: Iterable[Event], turn: TurnId) -> Ended | None:
    """What came of the turn; None while it is open."""
    text = ""
    for event in events:
        if event.turn != turn:
            continue
        if event.type == "model.responded":
            text = event.data["text"] or text
        elif event.type == "turn.finished":
            return Ended(event.data["outcome"], event.data["reason"], text)
    return None


def children_in(events: Sequence[Event]) -> list[Child]:
    """All that a conversation began, in their order; not those of what it was forked from."""
    children: dict[str, Child] = {}
    for event in events:
        if event.type == "conversation.created":
            children = {}
        elif event.type == "subagent.started":
            data = event.data
            name = ConversationId(data["conversation"])
            children[name] = Child(name, event.turn, data["detached"], data["machine"])
    for event in events:
        if event.type == "subagent.finished" and (child := children.get(event.data["conversation"])):
            children[child.conversation] = replace(child, outcome=event.data["outcome"])
    return list(children.values())


def told(ended: Ended) -> str:
    """What its parent is told."""
    if ended.outcome == "done":
        return ended.text or "(it said nothing)"
    why = f" {ended.reason}" if ended.reason else ""
    last = f"\nThe last it said: {ended.text}" if ended.text else ""
    return f"The subagent did not finish ({ended.outcome}).{why}{last}"


def progress_of(events: Iterable[Event]) -> tuple[int, str]:
    """The newest line of what a subagent did so far, and how many characters those before it have."""
    before, line = 0, ""
    for event in events:
        said = _line(event)
        before, line = (before + len(line), said) if said else (before, line)
    return before, line


_BEGINS = {"model": "thinks\n", "compaction": "summarises what is old\n"}


def _line(event: Event) -> str:
    match event.type:
        case "step.started":
            data = event.data
            return _BEGINS.get(data["kind"]) or f"{data['name']} begins\n"
        case "tool.finished":
            return f"{event.data['outcome']}\n"
        case _:
            return ""
