"""Principals: make one with its token, list, get, delete.

A token is told once, in the answer that made it, and recorded nowhere: the same request again gets everything but the
token, and is told what to do.
"""

import json
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.principal_shapes import (
    NewPrincipal,
    PrincipalMade,
    PrincipalPage,
    PrincipalShown,
    PrincipalsQuery,
    principal_json,
)
from outlive.api.shapes import NoQuery
from outlive.base import InvalidError, NotFoundError, OperationId, PrincipalId, derive, is_id
from outlive.governance import Answer, Principal, rights_of
from outlive.governance.identity import (
    check_admin,
    check_may_create,
    check_may_delete,
    check_name,
    new_token,
    unknown_principal,
    whole_rights,
)

router = APIRouter(prefix="/v1")

# The pattern is only told, not checked by FastAPI: an id of the wrong shape is the id of nothing, and gets a 404.
PrincipalInPath = Annotated[str, Path(json_schema_extra={"pattern": "^prin_[0-9a-f]{32}$"})]

ASKED_AGAIN = (
    "The token was in the first answer only and is stored nowhere. If that answer was lost, delete this principal and "
    "make it again under a new Idempotency-Key."
)


def _principal_id(text: str) -> PrincipalId:
    if not is_id(text, "prin"):
        raise unknown_principal(text)
    return PrincipalId(text)


def _made(principal: Principal, token: str) -> Answer:
    shown = principal_json(principal)
    answer = json_answer(201, shown | {"token": token, "hint": None}, ("location", f"/v1/principals/{principal.id}"))
    return answer._replace(kept=json.dumps(shown | {"token": None, "hint": ASKED_AGAIN}).encode())


@router.post(
    "/principals",
    status_code=201,
    response_model=PrincipalMade,
    responses=problems(408, 409, 413, 415),
    openapi_extra=takes(NewPrincipal),
)
async def create_principal(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Make a principal. Its token is in this answer and nowhere else. Needs the right `admin`."""
    by = principal_of(request)
    check_admin(by)
    body = await read_body(request, NewPrincipal)
    name = check_name(body.name)
    rights = whole_rights(rights_of(body.kind) if body.rights is None else body.rights)
    check_may_create(by, body.kind, rights)

    async def act(operation: OperationId) -> Answer:
        id, token = PrincipalId(derive("prin", operation)), new_token()
        made = await parts_of(request).principals.create(id, name=name, kind=body.kind, rights=rights, token=token)
        return _made(made, token)

    return await run_once(request, act)


@router.get("/principals", response_model=PrincipalPage, responses=problems())
async def list_principals(request: Request, query: Annotated[PrincipalsQuery, Query()]) -> Response:
    """Newest first, without those that were deleted. Needs the right `admin`."""
    check_admin(principal_of(request))
    if query.cursor is not None and not is_id(query.cursor, "prin"):
        raise InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
    principals = parts_of(request).principals
    if query.name is not None:
        try:
            items = [principal_json(await principals.find(query.name))]
        except NotFoundError:
            items = []
        return to_response(json_answer(200, {"items": items, "next": None}))
    before = PrincipalId(query.cursor) if query.cursor else None
    found = await principals.list(limit=query.limit + 1, before=before)
    page = found[: query.limit]
    following = page[-1].id if len(found) > query.limit else None
    return to_response(json_answer(200, {"items": [principal_json(each) for each in page], "next": following}))


@router.get("/principals/me", response_model=PrincipalShown, responses=problems())
async def show_me(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Who the token belongs to, and what it may do."""
    return to_response(json_answer(200, principal_json(principal_of(request))))


@router.get("/principals/{principal}", response_model=PrincipalShown, responses=problems(404))
async def get_principal(request: Request, principal: PrincipalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """One principal, also one that was deleted. Needs the right `admin`, but for oneself."""
    if principal != principal_of(request).id:
        check_admin(principal_of(request))
    found = await parts_of(request).principals.get(_principal_id(principal))
    return to_response(json_answer(200, principal_json(found)))


@router.delete("/principals/{principal}", status_code=204, responses=problems(404, 409))
async def delete_principal(request: Request, principal: PrincipalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Its token is nobody's from now on, its name is free; what it did keeps its id. Needs the right `admin`."""
    check_admin(principal_of(request))
    principals, id = parts_of(request).principals, _principal_id(principal)
    check_may_delete(principal_of(request), await principals.get(id))
    await principals.delete(id)
    return Response(status_code=204)
