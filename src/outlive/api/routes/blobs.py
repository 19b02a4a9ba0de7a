"""Big payloads and attachments, as the raw bytes they are. Never shown by a browser, only saved: anybody wrote them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.openapi import problems
from outlive.api.parts import parts_of
from outlive.api.shapes import NoQuery
from outlive.base import NotFoundError
from outlive.conversation.blobs import is_blob_name

router = APIRouter(prefix="/v1")

_SAFE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=31536000, immutable",  # the name is the hash of the bytes
}


@router.get(
    "/blobs/{name}",
    response_class=Response,
    responses=problems(404)
    | {
        200: {
            "description": "The bytes",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def get_blob(
    request: Request,
    name: Annotated[str, Path(json_schema_extra={"pattern": "^b3_[0-9a-f]{64}$"})],
    _: Annotated[NoQuery, Query()],
) -> Response:
    """The bytes of a blob."""
    if not is_blob_name(name):
        raise NotFoundError("blob.not_found", f"There is no blob {name[:80]!r}.")
    content = await parts_of(request).conversations.blobs.get(name)
    headers = {**_SAFE, "content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)
