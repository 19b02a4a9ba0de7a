"""Environments: define one and have it built, look at them, read what a build says."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.environment_shapes import (
    EnvironmentPage,
    EnvironmentShown,
    LogQuery,
    NewEnvironment,
    environment_json,
)
from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.paging import no_cursor, page_of
from outlive.api.parts import machines_of
from outlive.api.shapes import NoQuery, ShortListQuery
from outlive.base import NotFoundError, OperationId
from outlive.governance import Answer

router = APIRouter(prefix="/v1")

NAME_LIMIT = 64
EnvironmentInPath = Annotated[str, Path(json_schema_extra={"pattern": "^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$"})]


def _is_possible(name: str) -> bool:
    return name.isascii() and name.isprintable() and len(name) <= NAME_LIMIT


def _name(text: str) -> str:
    """Of a name that none can have there is nothing."""
    if not _is_possible(text):
        raise NotFoundError("environment.unknown", f"There is no environment {text[:NAME_LIMIT]!r}.")
    return text


@router.post(
    "/environments",
    status_code=202,
    response_model=EnvironmentShown,
    responses=problems(408, 409, 413, 415),
    openapi_extra=takes(NewEnvironment),
)
async def define_environment(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """From now on its name stands for this definition. It is built once, whoever asks; `state` says how far it is. A
    build that failed is tried again."""
    body = await read_body(request, NewEnvironment)

    async def act(_: OperationId) -> Answer:
        found = await machines_of(request).environments.define(body.to_definition())
        return json_answer(202, environment_json(found), ("location", f"/v1/environments/{found.name}"))

    return await run_once(request, act)


@router.get("/environments", response_model=EnvironmentPage, responses=problems())
async def list_environments(request: Request, query: Annotated[ShortListQuery, Query()]) -> Response:
    """By name."""
    if query.cursor is not None and not _is_possible(query.cursor):
        raise no_cursor()
    found = await machines_of(request).environments.list()
    page, following = page_of(found, lambda each: each.name, after=query.cursor, limit=query.limit)
    return to_response(json_answer(200, {"items": [environment_json(each) for each in page], "next": following}))


@router.get("/environments/{environment}", response_model=EnvironmentShown, responses=problems(404))
async def get_environment(request: Request, environment: EnvironmentInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """What this name (or digest) stands for now."""
    found = await machines_of(request).environments.get(_name(environment))
    return to_response(json_answer(200, environment_json(found)))


@router.get(
    "/environments/{environment}/log",
    response_class=Response,
    responses=problems(404) | {200: {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_build_log(
    request: Request, environment: EnvironmentInPath, query: Annotated[LogQuery, Query()]
) -> Response:
    """What its build has said so far; it only grows. At most 1 MiB is kept."""
    said = await machines_of(request).environments.log(_name(environment))
    headers = {"x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox"}
    return Response(said[query.after :], media_type="text/plain; charset=utf-8", headers=headers)
