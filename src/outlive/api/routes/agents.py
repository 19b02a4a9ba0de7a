"""Agents: apply a definition, look at them. A version never changes; the newest one of a name counts."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.agent_shapes import AgentPage, AgentShown, AgentsQuery, NewAgent, agent_json
from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import agents_of, principal_of
from outlive.api.shapes import NoQuery
from outlive.base import NotFoundError, OperationId
from outlive.governance import Answer
from outlive.loop.agents import NAME_PATTERN, unknown_agent

router = APIRouter(prefix="/v1")

VERSION_LIMIT = 2**31 - 1
AgentInPath = Annotated[str, Path(json_schema_extra={"pattern": NAME_PATTERN})]
# Only told, not checked by FastAPI: what is no number is the version of nothing, and gets a 404.
VersionInPath = Annotated[str, Path(json_schema_extra={"pattern": "^[1-9][0-9]{0,8}$"})]


def agent_name(text: str) -> str:
    """Of a name that none can have there is nothing."""
    if not text.isascii() or not text.isprintable():
        raise unknown_agent("?")
    return text


def _version(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not 1 <= int(text) <= VERSION_LIMIT:
        raise NotFoundError("agent.unknown", f"There is no version {text[:20]!r} of agent {name[:64]!r}.")
    return int(text)


@router.post(
    "/agents",
    status_code=201,
    response_model=AgentShown,
    responses=problems(408, 409, 413, 415),
    openapi_extra=takes(NewAgent),
)
async def apply_agent(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """From now on its name stands for this definition, as a new version; the same again makes none. Turns that have
    begun go on with the version that they began with."""
    body = await read_body(request, NewAgent)
    agents = agents_of(request)

    async def act(_: OperationId) -> Answer:
        made = await agents.apply(body.to_definition(), by=principal_of(request).id)
        location = f"/v1/agents/{made.name}/versions/{made.version}"
        return json_answer(201, agent_json(agents, made), ("location", location))

    return await run_once(request, act)


@router.get("/agents", response_model=AgentPage, responses=problems())
async def list_agents(request: Request, query: Annotated[AgentsQuery, Query()]) -> Response:
    """The newest version of each, by name."""
    agents = agents_of(request)
    found = [each for each in await agents.list() if query.cursor is None or each.name > query.cursor]
    page = found[: query.limit]
    following = page[-1].name if len(found) > query.limit else None
    return to_response(json_answer(200, {"items": [agent_json(agents, each) for each in page], "next": following}))


@router.get("/agents/{agent}", response_model=AgentShown, responses=problems(404))
async def get_agent(request: Request, agent: AgentInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """The newest version."""
    agents = agents_of(request)
    return to_response(json_answer(200, agent_json(agents, await agents.get(agent_name(agent)))))


@router.get("/agents/{agent}/versions/{version}", response_model=AgentShown, responses=problems(404))
async def get_agent_version(
    request: Request, agent: AgentInPath, version: VersionInPath, _: Annotated[NoQuery, Query()]
) -> Response:
    """One version, as it was applied."""
    agents, name = agents_of(request), agent_name(agent)
    return to_response(json_answer(200, agent_json(agents, await agents.version(name, _version(name, version)))))
