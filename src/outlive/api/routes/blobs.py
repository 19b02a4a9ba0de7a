"""Big payloads and attachments, as the raw bytes they are. Never shown by a browser, only saved: anybody wrote them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.body import raw_body
from outlive.api.once import json_answer, run_once
from outlive.api.openapi import IDEMPOTENCY_KEY, problems
from outlive.api.parts import parts_of
from outlive.api.shapes import NoQuery
from outlive.base import NotFoundError, OperationId
from outlive.conversation.blobs import is_blob_name
from outlive.governance import Answer

router = APIRouter(prefix="/v1")

_SAFE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=31536000, immutable",  # the name is the hash of the bytes
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class BlobShown(BaseModel):
    blob: str
    size: int


@router.post(
    "/blobs",
    status_code=201,
    response_model=BlobShown,
    responses=problems(408, 409, 413),
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}, "parameters": [IDEMPOTENCY_KEY]},
)
async def put_blob(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Store bytes, up to 64 MiB. Their name is made of them: the same bytes are stored once, whoever stores them."""
    content = raw_body(request)

    async def act(_: OperationId) -> Answer:
        name = await parts_of(request).conversations.blobs.put(content)
        return json_answer(201, {"blob": name, "size": len(content)}, ("location", f"/v1/blobs/{name}"))

    return await run_once(request, act)


@router.get(
    "/blobs/{name}",
    response_class=Response,
    responses=problems(404)
    | {
        200: {
            "description": "The bytes",
            "content": _BYTES,
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
