"""Races: start one, look at it, choose one of its contestants."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import parts_of, principal_of
from outlive.api.race_shapes import NewChoice, NewRace, RaceShown
from outlive.api.routes.agents import agent_name
from outlive.api.routes.conversations import IdInPath, conversation_id
from outlive.api.shapes import NoQuery
from outlive.base import NotFoundError, OperationId, RaceId, UnavailableError, is_id
from outlive.governance import Answer
from outlive.loop.machine_forks import MachineForks
from outlive.loop.races.race import RaceRecords
from outlive.loop.races.races import Races

router = APIRouter(prefix="/v1")

# The pattern is only told, not checked by FastAPI: an id of the wrong shape is the id of nothing, and gets a 404.
RaceInPath = Annotated[str, Path(json_schema_extra={"pattern": "^race_[0-9a-f]{32}$"})]


def _race_id(text: str) -> RaceId:
    if not is_id(text, "race"):
        raise NotFoundError("race.unknown", f"There is no race {text[:64]!r}.")
    return RaceId(text)


def _records(request: Request) -> RaceRecords:
    records = parts_of(request).races
    if records is None:
        raise UnavailableError("races.off", "This server has no races: it was set up without.")
    return records


def _races(request: Request) -> Races:
    parts, machines = parts_of(request), parts_of(request).machines
    forks = None
    if machines is not None:
        forks = MachineForks(parts.conversations, machines.keeper, machines.records, parts.clock)
    return Races(_records(request), parts.conversations, parts.loop, forks, parts.clock)


@router.post(
    "/conversations/{conversation}/races",
    status_code=201,
    response_model=RaceShown,
    responses=problems(404, 408, 409, 413, 415, 503, 504),
    openapi_extra=takes(NewRace),
)
async def start_race(request: Request, conversation: IdInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Give the same prompt to several models or agents, each in a fork of this conversation at its newest event, on a
    copy of its machine."""
    of = conversation_id(conversation)
    body = await read_body(request, NewRace)

    async def act(operation: OperationId) -> Answer:
        races, agents = _races(request), parts_of(request).agents
        for name in {each.agent for each in body.contestants} - {None}:
            if agents is not None:
                await agents.get(agent_name(str(name)))
        race = await races.start(
            operation,
            of,
            prompt=body.prompt,
            contestants=[each.to_contestant() for each in body.contestants],
            owner=principal_of(request).id,
        )
        return json_answer(201, await races.show(race), ("location", f"/v1/races/{race.id}"))

    return await run_once(request, act)


@router.get("/races/{race}", response_model=RaceShown, responses=problems(404, 503))
async def get_race(request: Request, race: RaceInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """A race as it stands: its contestants side by side."""
    races = _races(request)
    found = await _records(request).get(_race_id(race))
    return to_response(json_answer(200, await races.show(found)))


@router.post(
    "/races/{race}/choose",
    response_model=RaceShown,
    responses=problems(404, 408, 409, 413, 415, 503, 504),
    openapi_extra=takes(NewChoice),
)
async def choose_contestant(request: Request, race: RaceInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Keep one contestant. The others are let go: their turns stopped, their machines deleted, their conversations
    archived."""
    of = _race_id(race)
    body = await read_body(request, NewChoice)

    async def act(_: OperationId) -> Answer:
        races = _races(request)
        return json_answer(200, await races.show(await races.choose(of, body.conversation)))

    return await run_once(request, act)
