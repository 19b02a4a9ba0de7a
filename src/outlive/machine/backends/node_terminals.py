"""The door to terminals on their nodes: calls over HTTP, attachments over raw connections."""

from collections.abc import AsyncIterator, Sequence

import anyio
import anyio.abc
from pydantic import TypeAdapter, ValidationError

from outlive.base import MachineId, TerminalId
from outlive.machine.backends.node_calls import NodeCalls, lines, parse
from outlive.machine.door import Output
from outlive.machine.node_wire import ActRequest, garbled, parse_line
from outlive.machine.status import Effect
from outlive.machine.terminal.byte_frames import ByteFrames
from outlive.machine.terminal.door import (
    Act,
    AttachTerminal,
    FrameStream,
    Input,
    OpenTerminal,
    RunInTerminal,
    Signal,
    TerminalView,
)
from outlive.machine.terminal.newest import Newest
from outlive.machine.terminal.status import Operator, Terminal

ACT_WITHIN_S = 45.0  # the node itself gives a program 30 s to read what is typed
RUN_MARGIN_S = 60.0  # beyond a command's own timeout
_VIEWS = TypeAdapter(list[TerminalView])


class HttpTerminalDoor:
    """A `TerminalDoor`."""

    def __init__(self, calls: NodeCalls) -> None:
        self._calls = calls

    async def open(self, machine: MachineId, generation: int, request: OpenTerminal) -> TerminalView:
        raw = await self._calls.call(machine, generation, "POST", "/terminals", request.model_dump_json().encode())
        return parse(TerminalView, raw)

    async def view(self, machine: MachineId, generation: int, terminal: TerminalId) -> TerminalView:
        return parse(TerminalView, await self._calls.call(machine, generation, "GET", f"/terminals/{terminal}"))

    async def views(self, machine: MachineId, generation: int) -> Sequence[TerminalView]:
        raw = await self._calls.call(machine, generation, "GET", "/terminals")
        try:
            return _VIEWS.validate_json(raw)
        except ValidationError:
            raise garbled("it is no list of terminals") from None

    async def act(
        self, machine: MachineId, generation: int, terminal: TerminalId, operator: Operator, act: Act
    ) -> TerminalView:
        asked = ActRequest(operator=operator, act=act)
        raw = await self._calls.call(
            machine,
            generation,
            "POST",
            f"/terminals/{terminal}/act",
            asked.model_dump_json().encode(),
            within_s=ACT_WITHIN_S,
            may_repeat=not isinstance(act, Input | Signal),
        )
        return parse(TerminalView, raw)

    async def attach(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: AttachTerminal
    ) -> FrameStream:
        return ByteFrames(await self._calls.dial(machine, generation, terminal=terminal, attach=request))

    async def flush(self, machine: MachineId, generation: int, terminal: TerminalId) -> Terminal:
        return parse(Terminal, await self._calls.call(machine, generation, "POST", f"/terminals/{terminal}/flush"))

    async def newest(self, machine: MachineId, generation: int, terminal: TerminalId) -> Newest:
        return parse(Newest, await self._calls.call(machine, generation, "GET", f"/terminals/{terminal}/newest"))

    async def run(self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal) -> Effect:
        within_s = request.timeout_s + RUN_MARGIN_S
        target, body = f"/terminals/{terminal}/run", request.model_dump_json().encode()
        return parse(Effect, await self._calls.call(machine, generation, "POST", target, body, within_s=within_s))

    async def follow(
        self, machine: MachineId, generation: int, terminal: TerminalId, request: RunInTerminal
    ) -> AsyncIterator[Output | Effect]:
        within_s = request.timeout_s + RUN_MARGIN_S
        deadline = anyio.current_time() + within_s
        target, body = f"/terminals/{terminal}/follow", request.model_dump_json().encode()
        async with self._calls.open(machine, generation, "POST", target, body, within_s=within_s) as answer:
            async for line in lines(answer, deadline):
                told = parse_line(line)
                yield told
                if isinstance(told, Effect):
                    return
        raise garbled("the output of a command ended without its result")
