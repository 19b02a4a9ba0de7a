"""The messages that wait for an answer: list them, put them in another order, withdraw one.

What is done is in the log before it is answered, and only if nobody took the messages meanwhile.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import IDEMPOTENCY_KEY, problems, takes
from outlive.api.parts import principal_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.routes.steering import steering_of
from outlive.api.shapes import NewOrder, NoQuery, PageQuery, QueueShown
from outlive.base import InvalidError, NotFoundError, OperationId, is_id
from outlive.governance import Answer
from outlive.loop.follow_ups import FollowUp

router = APIRouter(prefix="/v1")

# As in `routes/conversations.py`: an id of the wrong shape is the id of nothing.
MessageInPath = Annotated[str, Path(json_schema_extra={"pattern": "^msg_[0-9a-f]{32}$"})]


@router.get("/conversations/{conversation}/queue", response_model=QueueShown, responses=problems(404))
async def list_queue(request: Request, conversation: IdInPath, query: Annotated[PageQuery, Query()]) -> Response:
    """The messages that wait, in the order in which the model will be told."""
    if query.cursor is not None and not is_id(query.cursor, "msg"):
        raise InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
    queue = await steering_of(request).queue(conversation_id(conversation))
    places = {each.id: place for place, each in enumerate(queue, 1)}
    first = places.get(query.cursor or "", 0)  # one that waits no more: what waits now came later, from its beginning
    return to_response(json_answer(200, _page(queue, first, query.limit)))


@router.put(
    "/conversations/{conversation}/queue",
    response_model=QueueShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewOrder),
)
async def order_queue(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Put the messages that wait in another order: all of them, each once. 409 `queue.changed` tells the present
    `order` if they are others by now."""
    id = conversation_id(conversation)
    body = await read_body(request, NewOrder)
    by = principal_of(request)

    async def act(operation: OperationId) -> Answer:
        queue = await steering_of(request).order(operation, id, body.order, actor=by.id)
        return json_answer(200, _page(queue, 0, len(queue)))

    return await run_once(request, act)


@router.delete(
    "/conversations/{conversation}/queue/{message}",
    response_model=QueueShown,
    responses=problems(404, 409),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
async def withdraw_message(
    request: Request, conversation: IdInPath, message: MessageInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """Take a message back before anybody answers it: the model is never told. 409 `message.taken` if it was taken
    already. Answers what waits then; again: nothing changes."""
    id = conversation_id(conversation)
    by = principal_of(request)
    if not is_id(message, "msg"):
        raise NotFoundError("message.not_found", f"There is no message {message[:64]!r}.")

    async def act(operation: OperationId) -> Answer:
        queue = await steering_of(request).withdraw(operation, id, message, actor=by.id)
        return json_answer(200, _page(queue, 0, len(queue)))

    return await run_once(request, act)


def _page(queue: Sequence[FollowUp], first: int, limit: int) -> dict[str, Any]:
    shown = queue[first : first + limit]
    following = shown[-1].id if first + limit < len(queue) else None
    return {"items": [each._asdict() for each in shown], "next": following}
