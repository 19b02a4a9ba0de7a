"""An MCP server as a command in a machine: what is sent to it goes to its stdin, what it prints comes back in lines.

It runs under an effect id, so it is begun once, whoever asks; and it ends with what it was begun for.
"""

import math
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from outlive.base import ConflictError, EffectId, ExhaustedError, NotFoundError, OutliveError, UnavailableError
from outlive.loop.tools.mcp.client import ANSWER_LIMIT
from outlive.loop.tools.mcp.server import McpServer
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.caller import closing
from outlive.machine.door import ExecRequest, Output
from outlive.machine.status import Effect

_STDERR_KEPT = 2_000  # bytes, the newest
_END_WITHIN_S = 2.0
_KILL_WITHIN_S = 0.5
_LOOK_S = 0.1


class MachinePipe:
    """A `Pipe`. Made by `open_pipe`."""

    def __init__(self, machine: ToolMachine, request: ExecRequest) -> None:
        self._machine = machine
        self._request = request
        self._sent = 0
        self._seen = 0
        self._stderr = b""
        self._stderr_seen = 0
        self._trouble: OutliveError | None = None
        self.ended: Effect | None = None
        self._chunks, self._received = anyio.create_memory_object_stream[bytes](math.inf)  # bounded by ANSWER_LIMIT

    async def lines(self) -> AsyncIterator[bytes]:
        waiting = b""
        async for chunk in self._received:
            *whole, waiting = (waiting + chunk).split(b"\n")
            for line in whole:
                yield line
        if self._trouble is not None:
            raise self._trouble

    async def send(self, data: bytes) -> None:
        """May be repeated: the offset says what has come already."""
        offset, effect = self._sent, self._request.effect_id
        self._sent += len(data)
        try:
            await self._machine.use(
                lambda door, generation: door.write_stdin(
                    self._machine.id, generation, effect, data, end=False, offset=offset
                )
            )
        except (ConflictError, NotFoundError) as error:  # it has ended: what it heard before, nobody knows
            raise UnavailableError("mcp.broken", f"It takes nothing any more ({error.message})") from error

    async def follow(self) -> None:
        """Take what it prints, to its end. What is told is told to the end too, also when nobody wants it any more:
        then it is passed over, until whoever opened the pipe has ended the server."""
        try:
            telling = self._machine.caller.follow(self._machine.id, self._request)
            async with closing(telling):
                async for told in telling:
                    if isinstance(told, Effect):
                        self.ended = told
                    elif self._trouble is None:
                        self._take_or_give_up(told)
        except OutliveError as error:
            self._trouble = error
        finally:
            self._chunks.close()

    def _take_or_give_up(self, told: Output) -> None:
        try:
            self._take(told)
        except OutliveError as error:
            self._trouble = error
            self._chunks.close()

    def _take(self, told: Output) -> None:
        if told.stream == "stderr":
            new = told.data[max(0, self._stderr_seen - told.offset) :]
            self._stderr_seen = max(self._stderr_seen, told.offset + len(told.data))
            self._stderr = (self._stderr + new)[-_STDERR_KEPT:]
            return
        if told.offset > self._seen:
            raise UnavailableError("mcp.broken", "A part of what the server printed is gone.")
        new = told.data[self._seen - told.offset :]
        if self._seen + len(new) > ANSWER_LIMIT:
            raise ExhaustedError("mcp.too_much", f"The server printed more than {ANSWER_LIMIT:,} bytes.")
        self._seen += len(new)
        with suppress(anyio.BrokenResourceError):  # nobody reads on
            self._chunks.send_nowait(new)

    def last_words(self) -> str:
        """How it ended, if it did, and the newest of what it complained of."""
        how = ""
        if self.ended is not None:
            how = f" It ended ({self.ended.state}, exit code {self.ended.exit_code})."
        said = self._stderr.decode("utf-8", "replace").strip()
        return how + (f" It said: {said}" if said else "")

    def close(self) -> None:
        """Nobody reads on."""
        self._received.close()
        self._chunks.close()

    async def end(self) -> None:
        """Its stdin ends, and so does it; or it is ended."""
        effect = self._request.effect_id
        with suppress(OutliveError):
            await self._machine.use(
                lambda door, generation: door.write_stdin(self._machine.id, generation, effect, b"", end=True)
            )
        with anyio.move_on_after(_END_WITHIN_S):
            while self.ended is None:  # noqa: ASYNC110  (a few times at most)
                await anyio.sleep(_LOOK_S)


@asynccontextmanager
async def open_pipe(machine: ToolMachine, server: McpServer, effect: EffectId) -> AsyncIterator[MachinePipe]:
    """Begin the server under this effect id, and end it: at leisure when all is said, else at once."""
    request = ExecRequest(
        effect_id=effect,
        argv=server.command,
        env=server.env,
        timeout_s=server.timeout_s + 60.0,  # what nobody ends
        background=True,
    )
    begun = await machine.caller.exec(machine.id, request)
    if begun.is_over:  # it could not be started, or had ended before anybody spoke to it
        said = f" It said: {begun.stderr.strip()[-_STDERR_KEPT:]}" if begun.stderr else ""
        raise UnavailableError("mcp.broken", f"It ended at once ({begun.state}, exit code {begun.exit_code}).{said}")
    pipe = MachinePipe(machine, request)
    trouble: OutliveError | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(pipe.follow)
        try:
            yield pipe
            with anyio.move_on_after(2 * _END_WITHIN_S):
                await pipe.end()
        except OutliveError as error:  # a task group would wrap it
            trouble = error
        finally:
            if pipe.ended is None:
                with anyio.move_on_after(_KILL_WITHIN_S, shield=True):
                    await kill(machine, effect)
            group.cancel_scope.cancel()
            pipe.close()
    if trouble is not None:
        raise trouble


async def kill(machine: ToolMachine, effect: EffectId) -> None:
    with suppress(OutliveError):  # it is over by now
        await machine.use(lambda door, generation: door.signal(machine.id, generation, effect, signal.SIGKILL))
