"""The subagents that a conversation began: read from its log."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer
from outlive.api.openapi import problems
from outlive.api.parts import parts_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import PageQuery
from outlive.base import InvalidError, is_id
from outlive.conversation.conversations import PAGE
from outlive.conversation.log import ConversationState
from outlive.loop.subagents import children_in

router = APIRouter(prefix="/v1")


class SubagentShown(BaseModel):
    conversation: str
    turn: str | None
    title: str | None
    agent: str | None
    state: ConversationState
    detached: bool
    machine: str
    outcome: str | None


class SubagentPage(BaseModel):
    items: list[SubagentShown]
    next: str | None


@router.get("/conversations/{conversation}/subagents", response_model=SubagentPage, responses=problems(404))
async def list_subagents(request: Request, conversation: IdInPath, query: Annotated[PageQuery, Query()]) -> Response:
    """In the order in which they began. `turn`: of this conversation, that began it; `outcome`: null while it works."""
    if query.cursor is not None and not is_id(query.cursor, "conv"):
        raise InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
    conversations, id = parts_of(request).conversations, conversation_id(conversation)
    await conversations.get(id)
    after, events = 0, []
    while page := await conversations.read(id, after, PAGE):
        after = page[-1].seq
        events += [event for event in page if event.type.startswith(("subagent.", "conversation."))]
    children = children_in(events)
    places = {child.conversation: place for place, child in enumerate(children, 1)}
    first = places.get(query.cursor, len(children)) if query.cursor else 0  # type: ignore[call-overload]
    shown = children[first : first + query.limit]
    items = []
    for child in shown:
        found = await conversations.get(child.conversation)
        items.append(
            {
                "conversation": child.conversation,
                "turn": child.turn,
                "title": found.title,
                "agent": found.agent,
                "state": found.state,
                "detached": child.detached,
                "machine": child.machine,
                "outcome": child.outcome,
            }
        )
    following = shown[-1].conversation if first + query.limit < len(children) else None
    return to_response(json_answer(200, {"items": items, "next": following}))
