"""Terminals: open, list, get, close, and what operators do to them. Reading never wakes a machine; the rest does."""

from collections.abc import Callable
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from outlive.api.errors import to_response
from outlive.api.machine_shapes import EffectShown, NoBody, effect_json
from outlive.api.once import json_answer, read_body, run_once
from outlive.api.openapi import problems, takes
from outlive.api.parts import machines_of, parts_of, principal_of, terminals_of
from outlive.api.routes.machines import MachineInPath, machine_id
from outlive.api.shapes import NoQuery
from outlive.api.terminal_shapes import (
    NewGrant,
    NewInput,
    NewRun,
    NewSize,
    NewTerminal,
    NewTerminalSignal,
    TerminalPage,
    TerminalShown,
    TerminalsQuery,
    at_rest,
    signal_number,
    terminal_json,
)
from outlive.base import (
    ConflictError,
    DeniedError,
    EffectId,
    FencedError,
    InvalidError,
    NotFoundError,
    OperationId,
    OutliveError,
    PrincipalId,
    TerminalId,
    derive,
    is_id,
)
from outlive.governance import Answer, Principal
from outlive.machine.status import Machine
from outlive.machine.terminal import door, lease
from outlive.machine.terminal.door import Act, TerminalView
from outlive.machine.terminal.status import Operator, Terminal

router = APIRouter(prefix="/v1")

VIEW_WITHIN_S = 5.0  # a node that is slower is not waited for: what SQL knows is an answer too
_POST_PROBLEMS = problems(404, 408, 409, 413, 415)

# The pattern is only told, not checked by FastAPI: an id of the wrong shape is the id of nothing, and gets a 404.
TerminalInPath = Annotated[str, Path(json_schema_extra={"pattern": "^term_[0-9a-f]{32}$"})]


def terminal_id(text: str) -> TerminalId:
    if not is_id(text, "term"):
        raise NotFoundError("terminal.unknown", f"There is no terminal {text[:64]!r}.")
    return TerminalId(text)


def operator_of(request: Request) -> Operator:
    return _operator(principal_of(request))


def _operator(principal: Principal) -> Operator:
    return Operator(id=principal.id, name=principal.name, kind=principal.kind, rights=principal.rights)


def check_observes(request: Request) -> None:
    principal = principal_of(request)
    if "observe" not in principal.rights:
        raise DeniedError("terminal.denied", f"{principal.name!r} has no right to observe terminals.", right="observe")


# ── open and look ──


@router.post(
    "/machines/{machine}/terminals",
    status_code=201,
    response_model=TerminalShown,
    responses=_POST_PROBLEMS,
    openapi_extra=takes(NewTerminal, required=False),
)
async def open_terminal(request: Request, machine: MachineInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Start a program on a PTY in the machine. Wakes a hibernated machine."""
    of = machine_id(machine)
    body = await read_body(request, NewTerminal, may_be_empty=True)

    async def act(operation: OperationId) -> Answer:
        asked = body.to_request(TerminalId(derive("term", operation)), principal_of(request).id)
        terminals = terminals_of(request)
        view = await machines_of(request).caller.use(of, lambda g: terminals.door.open(of, g, asked))
        return json_answer(201, terminal_json(view), ("location", f"/v1/terminals/{view.terminal.id}"))

    return await run_once(request, act)


@router.get("/machines/{machine}/terminals", response_model=TerminalPage, responses=problems(404))
async def list_terminals(
    request: Request, machine: MachineInPath, query: Annotated[TerminalsQuery, Query()]
) -> Response:
    """Of one machine, oldest first; also of one that was deleted: what was recorded stays."""
    check_observes(request)
    of = machine_id(machine)
    if query.cursor is not None and not is_id(query.cursor, "term"):
        raise InvalidError("cursor.malformed", "This is not a cursor: pass the `next` of the page before unchanged.")
    record = await machines_of(request).records.machines.get(of)
    found = await terminals_of(request).records.list(of, include_ended=query.ended)
    rest = [each for each in found if query.cursor is None or each.id > query.cursor]
    page = rest[: query.limit]
    seen = await _seen(request, record)
    items = [terminal_json(seen.get(each.id) or at_rest(each)) for each in page]
    following = page[-1].id if len(rest) > query.limit else None
    return to_response(json_answer(200, {"items": items, "next": following}))


async def _seen(request: Request, machine: Machine) -> dict[TerminalId, TerminalView]:
    """What the node sees of its terminals, if it can be asked."""
    if machine.state not in ("running", "paused"):
        return {}
    try:
        with anyio.fail_after(VIEW_WITHIN_S):
            views = await terminals_of(request).door.views(machine.id, machine.generation)
    except (OutliveError, TimeoutError):
        return {}
    return {view.terminal.id: view for view in views}


@router.get("/terminals/{terminal}", response_model=TerminalShown, responses=problems(404))
async def get_terminal(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """One terminal as it stands. Asking does not wake its machine."""
    check_observes(request)
    return to_response(json_answer(200, terminal_json(await _view(request, terminal_id(terminal)))))


async def _view(request: Request, of: TerminalId) -> TerminalView:
    record = await terminals_of(request).records.get(of)
    if not record.is_open:
        return at_rest(record)
    machine = await machines_of(request).keeper.get(record.machine)
    if machine.state not in ("running", "paused"):
        return at_rest(record)
    try:
        with anyio.fail_after(VIEW_WITHIN_S):
            return await terminals_of(request).door.view(machine.id, machine.generation, of)
    except (OutliveError, TimeoutError):
        return at_rest(await terminals_of(request).records.get(of))


@router.delete("/terminals/{terminal}", response_model=TerminalShown, responses=problems(404, 409))
async def close_terminal(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """End its program. What was recorded stays."""
    record = await terminals_of(request).records.get(terminal_id(terminal))
    view = await _act(request, record, door.Close()) if record.is_open else at_rest(record)
    return to_response(json_answer(200, terminal_json(view)))


# ── what operators do ──


async def _act(request: Request, record: Terminal, act: Act) -> TerminalView:
    """In the caller's name; wakes the machine. One that a person has stopped changes hands all the same."""
    lease.check_open(record)
    machines, terminals, operator = machines_of(request), terminals_of(request), operator_of(request)
    caller = machines.caller

    async def ask(generation: int) -> TerminalView:
        return await terminals.door.act(record.machine, generation, record.id, operator, act)

    if isinstance(act, door.Take | door.Yield | door.Grant):
        machine = await machines.keeper.get(record.machine)
        if machine.state == "paused":
            return await ask(machine.generation)
    if not isinstance(act, door.Input | door.Signal):
        return await caller.use(record.machine, ask)
    # Never asked twice: what is typed twice is wrong. So first that somebody is there to take it.
    await caller.use(record.machine, lambda g: terminals.door.view(record.machine, g, record.id))

    async def ask_once(generation: int) -> TerminalView:
        try:
            return await ask(generation)
        except FencedError:
            raise
        except OutliveError as error:
            if not error.is_retryable:
                raise
            raise ConflictError(
                "terminal.outcome_unknown",
                f"The node went away: whether this reached the terminal is not known. Look before you send it again. "
                f"({error.message})",
            ) from error

    return await caller.use(record.machine, ask_once)


def _add_verb(verb: str, body: type[Any], told: str, to_act: Callable[[Any], Act]) -> None:
    is_empty = body is NoBody

    @router.post(
        f"/terminals/{{terminal}}/{verb}",
        name=f"{verb}_terminal",
        description=told,
        response_model=TerminalShown,
        responses=_POST_PROBLEMS,
        openapi_extra=takes(body, required=not is_empty),
    )
    async def do_verb(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
        of = terminal_id(terminal)
        asked = to_act(await read_body(request, body, may_be_empty=is_empty))

        async def act(_: OperationId) -> Answer:
            record = await terminals_of(request).records.get(of)
            return json_answer(200, terminal_json(await _act(request, record, asked)))

        return await run_once(request, act)


_add_verb(
    "take", NoBody, "Have the lease, without its holder's consent: nobody else types any more.", lambda _: door.Take()
)
_add_verb("yield", NoBody, "Give the lease back: whoever types next has it.", lambda _: door.Yield())
_add_verb("input", NewInput, "Type. Takes a lease that nobody has.", lambda body: door.Input(data=body.to_bytes()))
_add_verb(
    "resize",
    NewSize,
    "The size that programs see. The holder's rules.",
    lambda body: door.Resize(cols=body.cols, rows=body.rows),
)
_add_verb(
    "signal",
    NewTerminalSignal,
    "To what runs in the foreground.",
    lambda body: door.Signal(number=signal_number(body.signal)),
)


@router.post(
    "/terminals/{terminal}/grant",
    response_model=TerminalShown,
    responses=_POST_PROBLEMS,
    openapi_extra=takes(NewGrant),
)
async def grant_terminal(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Hand the lease to another operator, by id or name."""
    of = terminal_id(terminal)
    body = await read_body(request, NewGrant)

    async def act(_: OperationId) -> Answer:
        principals = parts_of(request).principals
        is_named = not is_id(body.operator, "prin")
        found = await (principals.find(body.operator) if is_named else principals.get(PrincipalId(body.operator)))
        if found.deleted_at is not None:
            raise ConflictError("principal.deleted", f"{found.name!r} was deleted: nothing can be granted to it.")
        record = await terminals_of(request).records.get(of)
        return json_answer(200, terminal_json(await _act(request, record, door.Grant(operator=_operator(found)))))

    return await run_once(request, act)


@router.post(
    "/terminals/{terminal}/run",
    response_model=EffectShown,
    responses=_POST_PROBLEMS,
    openapi_extra=takes(NewRun),
)
async def run_in_terminal(request: Request, terminal: TerminalInPath, _: Annotated[NoQuery, Query()]) -> Response:
    """Type a command into the shell of the terminal, in the caller's name, and answer when it has ended: exit code and
    what it printed. With the same effect id it is never typed twice."""
    of = terminal_id(terminal)
    body = await read_body(request, NewRun)

    async def act(operation: OperationId) -> Answer:
        record = await terminals_of(request).records.get(of)
        lease.check_open(record)
        asked = body.to_request(EffectId(derive("eff", operation)), operator_of(request))
        terminals = terminals_of(request)
        effect = await machines_of(request).caller.use(
            record.machine, lambda g: terminals.door.run(record.machine, g, of, asked)
        )
        return json_answer(200, effect_json(effect))

    return await run_once(request, act)
