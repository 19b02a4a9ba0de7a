"""One plain HTTP request through the egress proxy: its head is written anew, its body and the answer flow through h11.

Rule 1: one request per connection. Both sides are told `Connection: close`, so nothing can be taken for the start of a
        second request, and every request is decided on its own.
Rule 2: an answer that breaks off is not made whole: the connection ends without the end that its framing promised.
"""

import asyncio
import socket

import anyio
import h11
from anyio.lowlevel import checkpoint

from outlive.governance.egress_http import HEAD_LIMIT, Head, Headers, Refusal, bad_request, end_to_end, unreachable
from outlive.governance.egress_splice import Idle, Tally, is_gone

_CHUNK = 64 * 1024


class Forwarding:
    """A request that was read by `server` from `near`, on its way to `far`."""

    def __init__(
        self, near: socket.socket, server: h11.Connection, far: socket.socket, tally: Tally, idle: Idle
    ) -> None:
        self._near = near
        self._server = server
        self._far = far
        self._client = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._tally = tally
        self._idle = idle
        self._fault: Refusal | None = None
        self.has_answered = False

    async def run(self, head: Head) -> Refusal | None:
        """Pass the request and its answer on. A refusal if there was no answer, and somebody is there to hear it."""
        refusal: Refusal | None = None
        try:
            request = h11.Request(method=head.method, target=head.target, headers=head.headers)
            await self._to_far(self._client.send(request))
            async with anyio.create_task_group() as group:
                group.start_soon(self._pass_body, group.cancel_scope)
                await self._pass_answer()
                group.cancel_scope.cancel()  # an origin may answer before it has heard everything
        except* (OSError, h11.ProtocolError) as faults:
            refusal = unreachable(
                "answer_broken", f"{head.host} gave no answer that can be passed on ({_first(faults)})."
            )
        return None if self.has_answered else self._fault or refusal

    async def _pass_body(self, scope: anyio.CancelScope) -> None:
        try:
            if self._server.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                await self._to_near(self._server.send(go_on))
            while isinstance(event := await self._next(self._server, self._near), h11.Data):
                await self._to_far(self._client.send(h11.Data(data=event.data)))
            await self._to_far(self._client.send(h11.EndOfMessage()))
            await anyio.wait_readable(self._near)
            if is_gone(self._near):
                scope.cancel()  # nobody is left to read an answer
        except h11.RemoteProtocolError as error:
            self._fault = bad_request(f"its body is broken ({error})")
            scope.cancel()
        except OSError:
            pass  # an origin that no longer listens may still answer

    async def _pass_answer(self) -> None:
        while True:
            event = await self._next(self._client, self._far)
            match event:
                case h11.InformationalResponse():
                    pass
                case h11.Response():
                    headers: Headers = [*end_to_end(list(event.headers)), (b"connection", b"close")]
                    answer = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                    self.has_answered = True
                    await self._to_near(self._server.send(answer))
                case h11.Data():
                    await self._to_near(self._server.send(h11.Data(data=event.data)))
                case h11.EndOfMessage():
                    await self._to_near(self._server.send(h11.EndOfMessage()))
                    return
                case _:
                    raise h11.RemoteProtocolError("the answer broke off")

    async def _next(self, reader: h11.Connection, source: socket.socket) -> object:
        loop = asyncio.get_running_loop()
        while (event := reader.next_event()) is h11.NEED_DATA:
            data = await loop.sock_recv(source, _CHUNK)
            if source is self._far:
                self._tally.count_down(len(data))
            self._idle.touch()
            reader.receive_data(data)
            await checkpoint()  # a socket that always has more must not keep the others from theirs
        return event

    async def _to_near(self, data: bytes | None) -> None:
        await asyncio.get_running_loop().sock_sendall(self._near, data or b"")

    async def _to_far(self, data: bytes | None) -> None:
        await asyncio.get_running_loop().sock_sendall(self._far, data or b"")
        self._tally.count_up(len(data or b""))


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """The fault itself, out of the groups that tasks wrap it in."""
    fault = faults.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault
