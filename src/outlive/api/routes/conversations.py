"""Conversations: create, list, get, archive, fork, interrupt."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import machines_of, parts_of, principal_of
from outlive.api.routes.agents import agent_name
from outlive.api.routes.machines import check_nodes
from outlive.api.shapes import (
    ArchiveQuery,
    ConversationPage,
    ConversationShown,
    ConversationWithBudget,
    ListQuery,
    NewConversation,
    NewFork,
    NewInterrupt,
    NoQuery,
    conversation_json,
)
from outlive.base import (
    ConflictError,
    ConversationId,
    InvalidError,
    NotFoundError,
    OperationId,
    TurnId,
    UnavailableError,
    is_id,
)
from outlive.conversation.log import Conversation
from outlive.governance import Answer
from outlive.loop.machine_forks import MachineForks

router = APIRouter(prefix="/v1")

# The pattern is only told, not checked by FastAPI: an id of the wrong shape is the id of nothing, and gets a 404.
IdInPath = Annotated[str, Path(json_schema_extra={"pattern": "^conv_[0-9a-f]{32}$"})]


def conversation_id(text: str) -> ConversationId:
    if not is_id(text, "conv"):
        raise NotFoundError("conversation.not_found", f"There is no conversation {text[:64]!r}.")
    return ConversationId(text)


def _created(conversation: Conversation) -> Answer:
    return json_answer(201, conversation_json(conversation), ("location", f"/v1/conversations/{conversation.id}"))


@router.post(
    "/conversations",
    status_code=201,
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewConversation, required=False),
)
async def create_conversation(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Make a conversation; with `parent`, a fork of another."""
    body = await read_body(request, NewConversation, may_be_empty=True)

    async def act(operation: OperationId) -> Answer:
        given = body.model_dump(exclude_unset=True, exclude={"parent"})
        if body.agent is not None and (agents := parts_of(request).agents) is not None:
            await agents.get(agent_name(body.agent))
        conversations, actor = parts_of(request).conversations, principal_of(request).id
        if body.parent is None:
            return _created(await conversations.create(operation, actor=actor, **given))
        parent = await conversations.get(ConversationId(body.parent.conversation))
        return _created(await conversations.fork(operation, parent, body.parent.at, actor=actor, **given))

    return await run_once(request, act)


@router.post(
    "/conversations/{conversation}/fork",
    status_code=201,
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415, 503, 504),
    openapi_extra=takes(NewFork, required=False),
)
async def fork_conversation(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Make a conversation that shares the past of this one, up to and including event `at`; with `machine: "fork"` on
    a copy of its machine."""
    parent_id = conversation_id(conversation)
    body = await read_body(request, NewFork, may_be_empty=True)
    given = {"model": body.model} if body.model is not None else {}

    async def act(operation: OperationId) -> Answer:
        conversations, actor = parts_of(request).conversations, principal_of(request).id
        if body.machine == "fork":
            return _created(await _fork_with_machine(request, operation, parent_id, body.at, given))
        # The head that it was forked at has moved on since: it cannot be made again.
        if body.at is None and (made := await conversations.find_made(operation)):
            return _created(made)
        parent = await conversations.get(parent_id)
        return _created(await conversations.fork(operation, parent, body.at or parent.head, actor=actor, **given))

    return await run_once(request, act)


async def _fork_with_machine(
    request: Request, operation: OperationId, parent: ConversationId, at: int | None, given: dict[str, Any]
) -> Conversation:
    parts, machines = parts_of(request), machines_of(request)
    await check_nodes(request)
    forks = MachineForks(parts.conversations, machines.keeper, machines.records, parts.clock)
    return await forks.fork(operation, parent, at=at, actor=principal_of(request).id, **given)


@router.get("/conversations", response_model=ConversationPage, responses=problems())
async def list_conversations(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
    """Newest first. `q`: those with all its words in the title or in one message or answer."""
    if query.cursor is not None and not is_id(query.cursor, "conv"):
        raise InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
    found = await parts_of(request).conversations.list(
        limit=query.limit + 1,
        before=ConversationId(query.cursor) if query.cursor else None,
        archived=query.archived,
        query=query.q or None,
    )
    page = found[: query.limit]
    following = page[-1].id if len(found) > query.limit else None
    return to_response(json_answer(200, {"items": [conversation_json(each) for each in page], "next": following}))


@router.get("/conversations/{conversation}", response_model=ConversationWithBudget, responses=problems(404))
async def get_conversation(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """One conversation as it stands."""
    parts = parts_of(request)
    found = await parts.conversations.get(conversation_id(conversation))
    budget = await parts.budgets.find(found)
    limited = {"budget": budget.to_json()} if budget is not None else {}
    return to_response(json_answer(200, {**conversation_json(found), **limited}))


@router.delete("/conversations/{conversation}", status_code=204, responses=problems(404, 409))
async def archive_conversation(
    request: Request, conversation: IdInPath, query: Annotated[ArchiveQuery, Query()]
) -> Response:
    """Archive: hidden, readable, no new messages. A turn that is open goes on to its end; with `interrupt` it is
    stopped first."""
    id, parts = conversation_id(conversation), parts_of(request)
    if query.interrupt and parts.loop is not None:
        found = await parts.conversations.get(id)
        if found.turn is not None:
            await _stop(request, found, found.turn, "the conversation was archived")
    await parts.conversations.archive(id, actor=principal_of(request).id)
    return Response(status_code=204)


@router.post(
    "/conversations/{conversation}/interrupt",
    response_model=ConversationShown,
    responses=problems(404, 408, 409, 413, 415, 503, 504),
    openapi_extra=takes(NewInterrupt, required=False),
)
async def interrupt_turn(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Stop the turn that is open, at once. Answers when it has ended."""
    id = conversation_id(conversation)
    body = await read_body(request, NewInterrupt, may_be_empty=True)

    async def act(operation: OperationId) -> Answer:
        conversations = parts_of(request).conversations
        found = await conversations.get(id)
        if found.turn is None:
            raise ConflictError("turn.none_open", f"No turn is open in {id!r}: there is nothing to interrupt.")
        await _stop(request, found, found.turn, body.reason)
        return json_answer(200, conversation_json(await conversations.get(id)))

    return await run_once(request, act)


async def _stop(request: Request, found: Conversation, turn: TurnId, reason: str | None) -> None:
    loop = parts_of(request).loop
    if loop is None:
        raise UnavailableError("loop.off", "This server runs no turns, so it can stop none.")
    await loop.interrupt(found.id, turn, by=principal_of(request).id, reason=reason, seen=found.head)
