"""The terminals of a node, over HTTP: open, look, act, flush, run. Attaching goes over a raw connection (`splice`)."""

from collections.abc import Awaitable, Callable

from outlive.api.node.asgi import Call, read_model, send_json, send_lines
from outlive.base import NotFoundError, TerminalId, is_id
from outlive.machine.node_wire import ActRequest
from outlive.machine.terminal.door import OpenTerminal, RunInTerminal, TerminalDoor


def terminal_handlers(door: TerminalDoor) -> dict[tuple[str, str], Callable[[Call], Awaitable[None]]]:
    handlers = _Handlers(door)
    return {("GET", "terminals"): handlers.get, ("POST", "terminals"): handlers.post}


class _Handlers:
    def __init__(self, door: TerminalDoor) -> None:
        self._door = door

    async def get(self, call: Call) -> None:
        match call.rest:
            case ():
                views = await self._door.views(call.machine, call.generation)
                await send_json(call.send, b"[" + b",".join(view.model_dump_json().encode() for view in views) + b"]")
            case (terminal,):
                view = await self._door.view(call.machine, call.generation, _terminal(terminal))
                await send_json(call.send, view.model_dump_json().encode())
            case (terminal, "newest"):
                newest = await self._door.newest(call.machine, call.generation, _terminal(terminal))
                await send_json(call.send, newest.model_dump_json().encode())
            case _:
                raise _nothing()

    async def post(self, call: Call) -> None:
        match call.rest:
            case ():
                opened = await self._door.open(call.machine, call.generation, await read_model(call, OpenTerminal))
                await send_json(call.send, opened.model_dump_json().encode())
            case (terminal, "act"):
                asked = await read_model(call, ActRequest)
                view = await self._door.act(
                    call.machine, call.generation, _terminal(terminal), asked.operator, asked.act
                )
                await send_json(call.send, view.model_dump_json().encode())
            case (terminal, "flush"):
                record = await self._door.flush(call.machine, call.generation, _terminal(terminal))
                await send_json(call.send, record.model_dump_json().encode())
            case (terminal, "run"):
                request = await read_model(call, RunInTerminal)
                effect = await self._door.run(call.machine, call.generation, _terminal(terminal), request)
                await send_json(call.send, effect.model_dump_json().encode())
            case (terminal, "follow"):
                request = await read_model(call, RunInTerminal)
                followed = self._door.follow(call.machine, call.generation, _terminal(terminal), request)
                await send_lines(call, followed)
            case _:
                raise _nothing()


def _terminal(text: str) -> TerminalId:
    if not is_id(text, "term"):
        raise _nothing()
    return TerminalId(text)


def _nothing() -> NotFoundError:
    return NotFoundError("route.not_found", "There is nothing at this path.")
