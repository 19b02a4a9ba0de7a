"""Reading a conversation: its events, its stream, its transcript."""

import json
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.envelope import event_json
from outlive.api.errors import to_response
from outlive.api.once import json_answer
from outlive.api.openapi import LAST_EVENT_ID, problems
from outlive.api.parts import parts_of, state_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import EventPage, EventsQuery, NoQuery, StreamQuery, TranscriptShown
from outlive.api.sse import EventStream
from outlive.conversation.position import START, Position, format_position, parse_position, tag_of

router = APIRouter(prefix="/v1")


@router.get("/conversations/{conversation}/events", response_model=EventPage, responses=problems(404))
async def read_events(request: Request, conversation: IdInPath, query: Annotated[EventsQuery, Query()]) -> Response:
    """Durable events with a seq greater than `after`, in order. `next` is the `after` of the next page."""
    of = conversation_id(conversation)
    conversations = parts_of(request).conversations
    after = query.after if query.cursor is None else query.cursor
    head = (await conversations.get(of)).head
    page = await conversations.read(of, after, query.limit)
    tag = tag_of(of)
    items = ",".join(event_json(of, event, format_position(tag, Position(event.seq))) for event in page)
    # A page may have fewer than `limit` and not be the last: very big events are read a few at a time.
    following = json.dumps(page[-1].seq if page and page[-1].seq < head else None)
    return Response(f'{{"items":[{items}],"next":{following}}}', media_type="application/json")


@router.get(
    "/conversations/{conversation}/stream",
    response_class=Response,
    responses=problems(404)
    | {
        200: {
            "description": "Frames: `id:` is a position, `event:` a type, `data:` an event envelope",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
    openapi_extra={"parameters": [LAST_EVENT_ID]},
)
async def stream_events(request: Request, conversation: IdInPath, query: Annotated[StreamQuery, Query()]) -> Response:
    """Everything after a position (absent: from the start), then live, as server-sent events."""
    of = conversation_id(conversation)
    after = request.headers.get("last-event-id") or query.after
    position = parse_position(of, after) if after else START
    return EventStream(state_of(request), of, position, deltas=query.deltas)


@router.get("/conversations/{conversation}/transcript", response_model=TranscriptShown, responses=problems(404))
async def read_transcript(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """What a person should read now: retries folded. `position` is where to follow on from."""
    of = conversation_id(conversation)
    conversations = parts_of(request).conversations
    state = (await conversations.get(of)).state
    transcript = await conversations.transcript(of)
    shown = {
        "conversation": of,
        "head": transcript.head,
        "position": format_position(tag_of(of), Position(transcript.head)),
        "state": state,
        **transcript.to_json(),
    }
    return to_response(json_answer(200, shown))
