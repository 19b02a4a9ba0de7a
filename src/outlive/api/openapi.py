"""The OpenAPI document: FastAPI's, with what it cannot know: our problems, our bodies, our token."""

import json
from typing import Any

import anyio
from anyio import to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outlive.api.agent_shapes import NewAgent
from outlive.api.approval_shapes import NewDecision
from outlive.api.budget_shapes import NewRaise
from outlive.api.environment_shapes import NewEnvironment
from outlive.api.errors import PROBLEM_TYPE
from outlive.api.gate import PUBLIC
from outlive.api.machine_shapes import NewExec, NewMachine, NewMachineFork, NewSignal, NewStdin, NoBody
from outlive.api.principal_shapes import NewPrincipal
from outlive.api.replay_shapes import NewReplay
from outlive.api.shapes import (
    NewCompaction,
    NewConversation,
    NewFork,
    NewInterrupt,
    NewMessage,
    NewModel,
    NewOrder,
    NewPause,
    Problem,
)
from outlive.api.terminal_shapes import NewGrant, NewInput, NewRun, NewSize, NewTerminal, NewTerminalSignal

_OURS: tuple[type[BaseModel], ...] = (
    NewAgent,
    NewCompaction,
    NewConversation,
    NewDecision,
    NewEnvironment,
    NewExec,
    NewFork,
    NewGrant,
    NewInput,
    NewInterrupt,
    NewMachine,
    NewMachineFork,
    NewMessage,
    NewOrder,
    NewPause,
    NewModel,
    NewPrincipal,
    NewRaise,
    NewReplay,
    NewRun,
    NewSignal,
    NewSize,
    NewStdin,
    NewTerminal,
    NewTerminalSignal,
    NoBody,
    Problem,
)
_TEMPLATE = "#/components/schemas/{model}"

_ANYWHERE = (401, 403, 421, 422, 429, 500, 503, 504)
_PROBLEMS = {
    401: "No token, or one that is not known",
    403: "Not allowed",
    404: "No such thing",
    408: "The body came too slowly",
    409: "The present state does not allow this",
    413: "The body is larger than 16 MiB",
    415: "The body is not JSON",
    416: "The file has no such range",
    421: "The Host header names another server",
    422: "The request is not right",
    429: "A limit was reached",
    500: "Something is broken on the server's side",
    503: "A part is away, or the server is full",
    504: "It took too long",
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and body again: the same answer, and nothing is done twice. Kept 24 h.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The position of the last frame that was seen.",
    "schema": {"type": "string"},
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: those every route has, and `statuses`."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": _TEMPLATE.format(model="Problem")}}}
    return {
        status: {"description": _PROBLEMS[status], "content": content} for status in sorted({*_ANYWHERE, *statuses})
    }


def takes(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes a JSON body under an idempotency key."""
    schema = {"$ref": _TEMPLATE.format(model=model.__name__)}
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}},
        "parameters": [IDEMPOTENCY_KEY],
    }


def openapi_route(app: FastAPI) -> Route:
    """`GET /openapi.json`: made once, in a thread, when it is first asked for. It is most of what an app costs to make,
    and few ever ask."""
    one_at_a_time = anyio.Lock()
    document = b""

    async def show(_: Request) -> Response:
        nonlocal document
        async with one_at_a_time:
            if not document:
                document = await to_thread.run_sync(lambda: json.dumps(_describe(app)).encode())
        return Response(document, media_type="application/json")

    return Route("/openapi.json", show, methods=["GET"])


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Outlive",
        version="1",
        description="Conversations that outlive their machine, their client and their deploy.",
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, ours = models_json_schema([(model, "validation") for model in _OURS], ref_template=_TEMPLATE)
    schemas.update(ours["$defs"])
    schemas["Problem"]["additionalProperties"] = True
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in PUBLIC:
                operation["security"] = []
    return document
