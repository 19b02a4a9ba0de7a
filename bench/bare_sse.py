"""The bare rivals over HTTP: uvicorn and a plain ASGI application, with nothing of what Outlive does.

    GET /rows            the rows of one conversation, read in one go and written as frames: a bare catch-up
    GET /broadcast       what is published from now on, one asyncio queue per client: no log, no position, no bound
    GET /joined          the same, but what waits for a client is written at once
    POST /publish        each line of the body as one frame to every client of the two

The stack is the one that Outlive's API runs on (uvicorn, httptools, uvloop), without its access log.
"""

import argparse
import asyncio
import socket
import sqlite3
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from bench.lifeline import end_with_the_bench, say
from bench.rows import SELECT_EVENTS, envelope_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SSE = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_FRAMES_PER_SEND = 500  # as many rows as fill a few hundred kilobytes: what a sensible author would write at once


class Bare:
    def __init__(self, database: str | None) -> None:
        self._database = database
        self._queues: set[asyncio.Queue[bytes]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        match scope["path"]:
            case "/rows":
                await self._rows(send)
            case "/broadcast":
                await self._broadcast(send, is_joined=False)
            case "/joined":
                await self._broadcast(send, is_joined=True)
            case "/publish":
                await self._publish(receive, send)
            case _:
                await _answer(send, 404)

    async def _rows(self, send: Send) -> None:
        assert self._database is not None
        await send({"type": "http.response.start", "status": 200, "headers": _SSE})
        rows = await asyncio.to_thread(_read, self._database)
        for at in range(0, len(rows), _FRAMES_PER_SEND):
            body = "".join(
                [f"id: {row[0]}\ndata: {envelope_json(row)}\n\n" for row in rows[at : at + _FRAMES_PER_SEND]]
            )
            await send({"type": "http.response.body", "body": body.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _broadcast(self, send: Send, *, is_joined: bool) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.add(queue)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _SSE})
            await send({"type": "http.response.body", "body": b": ready\n\n", "more_body": True})
            while True:
                frame = await queue.get()
                while is_joined and not queue.empty():
                    frame += queue.get_nowait()
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        finally:
            self._queues.discard(queue)

    async def _publish(self, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        for line in body.splitlines():
            frame = b"data: " + line + b"\n\n"
            for queue in self._queues:
                queue.put_nowait(frame)
        await _answer(send, 202)


def _read(database: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(SELECT_EVENTS, (1 << 32, (1 << 32) + 0xFFFFFFFF)).fetchall()
    finally:
        connection.close()


async def _answer(send: Send, status: int) -> None:
    headers = [(b"content-length", b"2"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--database")
    options = parser.parse_args()
    end_with_the_bench()
    config = uvicorn.Config(Bare(options.database), log_level="warning", access_log=False, lifespan="off")
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    say(port=listener.getsockname()[1])  # it listens: who connects before it serves waits a moment
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
