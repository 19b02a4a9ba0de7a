"""Artifacts: what turns offer as proof. Which there are is read from a conversation's log; the bytes by their id.

Their bytes come from a machine, so a browser only ever saves them.
"""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.machine_shapes import NumberedQuery
from outlive.api.once import json_answer
from outlive.api.openapi import problems
from outlive.api.parts import parts_of
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import NoQuery
from outlive.base import ArtifactId
from outlive.conversation.events import ArtifactPublished
from outlive.conversation.upcast import typed

router = APIRouter(prefix="/v1")

_PAGE = 1_000
_PAGES = 20  # of the log, that one request looks through
_SAFE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=31536000, immutable",  # an artifact never changes
}

ArtifactInPath = Annotated[str, Path(json_schema_extra={"pattern": "^art_[0-9a-f]{32}$"})]


class ArtifactListed(BaseModel):
    id: str
    title: str
    media_type: str
    size: int
    turn: str | None
    at: str


class ArtifactPage(BaseModel):
    items: list[ArtifactListed]
    next: int | None


class ArtifactShown(BaseModel):
    id: str
    conversation: str
    title: str
    name: str
    media_type: str
    size: int
    blob: str


@router.get("/conversations/{conversation}/artifacts", response_model=ArtifactPage, responses=problems(404))
async def list_artifacts(
    request: Request, conversation: IdInPath, query: Annotated[NumberedQuery, Query()]
) -> Response:
    """What was published in a conversation, oldest first; a fork's shared past included. A page may have fewer than
    `limit`, and not be the last: `next` says."""
    of = conversation_id(conversation)
    conversations = parts_of(request).conversations
    head = (await conversations.get(of)).head
    items: list[dict[str, object]] = []
    after = query.cursor
    for _ in range(_PAGES):
        if after >= head or len(items) >= query.limit:
            break
        for event in await conversations.read(of, after, _PAGE):
            after = event.seq
            if event.type != ArtifactPublished.type:
                continue
            said = typed(event)
            assert isinstance(said, ArtifactPublished)
            about = said.model_dump(exclude={"artifact"})
            items.append({"id": said.artifact, **about, "turn": event.turn, "at": event.at})
            if len(items) >= query.limit:
                break
    return to_response(json_answer(200, {"items": items, "next": after if after < head else None}))


@router.get("/artifacts/{artifact}", response_model=ArtifactShown, responses=problems(404))
async def get_artifact(request: Request, artifact: ArtifactInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """What an artifact is."""
    found = await parts_of(request).artifacts.get(ArtifactId(artifact))
    return to_response(json_answer(200, found.model_dump()))


@router.get(
    "/artifacts/{artifact}/content",
    response_class=Response,
    responses=problems(404)
    | {
        200: {
            "description": "The bytes",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def get_content(request: Request, artifact: ArtifactInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """The bytes of an artifact."""
    parts = parts_of(request)
    found = await parts.artifacts.get(ArtifactId(artifact))
    content = await parts.conversations.blobs.get(found.blob)
    named = f"attachment; filename*=UTF-8''{quote(found.name, safe='')}"
    headers = {**_SAFE, "content-disposition": named}
    return Response(content, media_type="application/octet-stream", headers=headers)
