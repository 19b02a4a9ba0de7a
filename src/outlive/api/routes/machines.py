"""Machines: create, list, get, delete, and the verbs of their life. Each answers when it is so."""

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.egress_shapes import EgressPage, egress_json
from outlive.api.errors import to_response
from outlive.api.machine_shapes import (
    CheckpointMade,
    CheckpointPage,
    MachineEventPage,
    MachineList,
    MachinePage,
    MachineShown,
    MachinesQuery,
    NewMachine,
    NewMachineFork,
    NoBody,
    NodePage,
    NumberedQuery,
    checkpoint_json,
    event_json,
    machine_json,
    node_json,
)
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.paging import no_cursor, page_of
from outlive.api.parts import machines_of, parts_of, principal_of
from outlive.api.shapes import NoQuery, ShortListQuery
from outlive.base import (
    CheckpointId,
    ConversationId,
    MachineId,
    NodeId,
    NotFoundError,
    OperationId,
    UnavailableError,
    derive,
    is_id,
)
from outlive.governance import Answer
from outlive.loop.attaching import Attacher
from outlive.machine.environment import DEFAULT_NAME
from outlive.machine.lifecycle import Verb
from outlive.machine.records import MachineFilter
from outlive.machine.status import Machine

router = APIRouter(prefix="/v1")

# The pattern is only told, not checked by FastAPI: an id of the wrong shape is the id of nothing, and gets a 404.
MachineInPath = Annotated[str, Path(json_schema_extra={"pattern": "^mach_[0-9a-f]{32}$"})]


def machine_id(text: str) -> MachineId:
    if not is_id(text, "mach"):
        raise NotFoundError("machine.unknown", f"There is no machine {text[:64]!r}.")
    return MachineId(text)


@router.post(
    "/machines",
    status_code=201,
    response_model=MachineShown,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewMachine, required=False),
)
async def create_machine(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
    """Make a machine. It is running when this answers. A conversation that has none works in it from now on."""
    body = await read_body(request, NewMachine, may_be_empty=True)

    async def act(operation: OperationId) -> Answer:
        machines, owner = machines_of(request), principal_of(request).id
        attacher = Attacher(parts_of(request).conversations, machines.keeper, machines.records)
        conversation = ConversationId(body.conversation) if body.conversation else None
        if conversation is not None:
            await attacher.check(conversation, operation)
        environment = body.environment or DEFAULT_NAME
        await machines.environments.resolve(environment)
        await check_nodes(request)
        made = await machines.environments.create_machine(
            operation,
            environment=environment,
            owner=owner,
            name=body.name,
            conversation=conversation,
        )
        if conversation is not None:
            await attacher.attach(conversation, made, actor=owner)
        return json_answer(201, machine_json(made), ("location", f"/v1/machines/{made.id}"))

    return await run_once(request, act)


async def check_nodes(request: Request) -> None:
    """That somebody can run a machine: else whoever asks would only wait."""
    nodes = machines_of(request).records.nodes
    for node in await nodes.list():
        # Asked of the database: a lease is reckoned by its clock, and ours may be another.
        if not node.is_draining and not await nodes.is_gone(node.id, margin_s=0.0):
            return
    raise UnavailableError(
        "node.none",
        "No node is there to run machines. `outlive status` and `outlive doctor` say why.",
        retry_after_s=5,
    )


@router.get("/machines", response_model=MachinePage, responses=problems())
async def list_machines(request: Request, query: Annotated[MachinesQuery, Query()]) -> Response:
    """Newest first; deleted ones only when asked for."""
    if query.cursor is not None and not is_id(query.cursor, "mach"):
        raise no_cursor()
    chosen = MachineFilter(
        conversation=ConversationId(query.conversation) if query.conversation else None,
        environment=query.environment,
        states=tuple(query.state.split(",")) if query.state else None,
    )
    before = MachineId(query.cursor) if query.cursor else None
    found = await machines_of(request).records.machines.list(chosen, limit=query.limit + 1, before=before)
    page = found[: query.limit]
    following = page[-1].id if len(found) > query.limit else None
    return _page([machine_json(each) for each in page], following)


@router.get("/machines/{machine}", response_model=MachineShown, responses=problems(404))
async def get_machine(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """One machine as it stands. Asking does not wake it."""
    found = await machines_of(request).keeper.get(machine_id(machine))
    return to_response(json_answer(200, machine_json(found)))


@router.delete("/machines/{machine}", response_model=MachineShown, responses=problems(404, 409))
async def delete_machine(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Delete it for good: what runs in it, its files, its checkpoints."""
    gone = await machines_of(request).keeper.do(machine_id(machine), "delete")
    return to_response(json_answer(200, machine_json(gone)))


# ── verbs ──


def _add_verb(verb: Verb, told: str) -> None:
    @router.post(
        f"/machines/{{machine}}/{verb}",
        name=f"{verb}_machine",
        description=told,
        response_model=MachineShown,
        responses=problems(404, 408, 409, 413, 415),
        openapi_extra=takes(NoBody, required=False),
    )
    async def do_verb(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
        of = machine_id(machine)
        await read_body(request, NoBody, may_be_empty=True)

        async def act(_: OperationId) -> Answer:
            if verb == "wake":
                await check_nodes(request)
            return json_answer(200, machine_json(await machines_of(request).keeper.do(of, verb)))

        return await run_once(request, act)


_add_verb("pause", "Stop everything in it, from outside, until somebody says resume. A person's stop.")
_add_verb("resume", "End a pause.")
_add_verb("hibernate", "Save memory and filesystem, then give up its place on the node. Nothing is lost by it.")
_add_verb("wake", "Bring a hibernated machine back as it was, on any node.")


@router.post(
    "/machines/{machine}/checkpoint",
    response_model=CheckpointMade,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NoBody, required=False),
)
async def checkpoint_machine(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Save its memory and filesystem as they are now; it goes on running."""
    of = machine_id(machine)
    await read_body(request, NoBody, may_be_empty=True)

    async def act(_: OperationId) -> Answer:
        return json_answer(200, {"id": await machines_of(request).keeper.checkpoint(of)})

    return await run_once(request, act)


@router.post(
    "/machines/{machine}/fork",
    status_code=201,
    response_model=MachineShown | MachineList,
    responses=problems(404, 408, 409, 413, 415),
    openapi_extra=takes(NewMachineFork, required=False),
)
async def fork_machine(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Make a copy of a live machine, memory included; with `count` so many, and a list of them is the answer."""
    of = machine_id(machine)
    body = await read_body(request, NewMachineFork, may_be_empty=True)

    async def act(operation: OperationId) -> Answer:
        children = [_child(operation, number) for number in range(body.count or 1)]
        keeper, owner = machines_of(request).keeper, principal_of(request).id
        await check_nodes(request)
        made: list[Machine] = list(await keeper.fork(of, children, owner=owner, name=body.name))
        if body.count is None:
            return json_answer(201, machine_json(made[0]), ("location", f"/v1/machines/{made[0].id}"))
        return json_answer(201, {"items": [machine_json(each) for each in made]})

    return await run_once(request, act)


def _child(operation: OperationId, number: int) -> MachineId:
    """The id of one of many that an operation makes: the same each time it is run again."""
    first = derive("mach", operation)
    if number == 0:
        return MachineId(first)
    return MachineId(first[:-8] + hashlib.sha256(f"{first} {number}".encode()).hexdigest()[:8])


# ── what is known of it ──


@router.get("/machines/{machine}/events", response_model=MachineEventPage, responses=problems(404))
async def list_machine_events(
    request: Request, machine: MachineInPath, query: Annotated[NumberedQuery, Query()]
) -> Response:
    """Its history, oldest first."""
    records, of = machines_of(request).records.machines, machine_id(machine)
    await records.get(of)
    found = await records.events(of, after=query.cursor, limit=query.limit + 1)
    page = found[: query.limit]
    items = [event_json(n, event) for n, event in page]
    return _page(items, page[-1][0] if len(found) > query.limit else None)


@router.get("/machines/{machine}/egress", response_model=EgressPage, responses=problems(404))
async def list_egress(request: Request, machine: MachineInPath, query: Annotated[NumberedQuery, Query()]) -> Response:
    """What was decided on its connections to the outside, oldest first. Each that was allowed has two lines: `allowed`,
    and how it came out. Also of a deleted machine; asking does not wake one."""
    machines, of = machines_of(request), machine_id(machine)
    await machines.records.machines.get(of)
    found = await machines.egress.list(of, after=query.cursor, limit=query.limit + 1)
    page = found[: query.limit]
    return _page([egress_json(*each) for each in page], page[-1][0] if len(found) > query.limit else None)


@router.get("/machines/{machine}/checkpoints", response_model=CheckpointPage, responses=problems(404))
async def list_checkpoints(
    request: Request, machine: MachineInPath, query: Annotated[ShortListQuery, Query()]
) -> Response:
    """Its checkpoints, newest first."""
    machines, of = machines_of(request), machine_id(machine)
    if query.cursor is not None and not is_id(query.cursor, "ckpt"):
        raise no_cursor()
    await machines.keeper.get(of)
    found = await machines.records.checkpoints.list(of)
    after = CheckpointId(query.cursor) if query.cursor else None
    page, following = page_of(found, lambda each: each.id, after=after, limit=query.limit, descending=True)
    return _page([checkpoint_json(each) for each in page], following)


@router.get("/nodes", response_model=NodePage, responses=problems())
async def list_nodes(request: Request, query: Annotated[ShortListQuery, Query()]) -> Response:
    """The hosts that run machines, as they describe themselves."""
    if query.cursor is not None and not is_id(query.cursor, "node"):
        raise no_cursor()
    nodes = machines_of(request).records.nodes
    after = NodeId(query.cursor) if query.cursor else None
    page, following = page_of(await nodes.list(), lambda each: each.id, after=after, limit=query.limit)
    found = [(each, not await nodes.is_gone(each.id, margin_s=0.0)) for each in page]
    return _page([node_json(each, has_lease=has) for each, has in found], following)


def _page(items: list[dict[str, Any]], following: int | str | None) -> Response:
    return to_response(json_answer(200, {"items": items, "next": following}))
