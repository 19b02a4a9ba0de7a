"""A machine's side of the egress proxy, origins on loopback, and a dialer with a book of names. All sockets are real.

The dialer stands at the seam to the world: it answers from its book where the host would ask a name server, and keeps
to the address it is told. An address of the outer world leads to an origin here if `routes` says so; every address
that was asked for is noted, so a test sees where the proxy went, and that it did not go.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import anyio
import anyio.abc
import pytest

from outlive.base import MachineId, SystemClock, UnavailableError
from outlive.governance import (
    DirectDialer,
    EgressDecision,
    EgressLimits,
    EgressProxy,
    listen_for_egress,
    open_egress_recording,
    parse_egress_rules,
)
from outlive.governance.egress import Address, EgressRules, Name

MACHINE = MachineId("mach_0123")
LOOPBACK = "127.0.0.1"
PUBLIC, OTHER_PUBLIC = "8.8.8.8", "9.9.9.9"

Handler = Callable[[anyio.abc.SocketStream], Awaitable[None]]


def outer_dialer() -> "BookDialer":
    """`allowed.test` is in the outer world, and its address leads to loopback."""
    dialer = BookDialer(allowed_test=[PUBLIC])
    dialer.routes[PUBLIC] = dialer.routes[OTHER_PUBLIC] = LOOPBACK
    return dialer


class Origin:
    """A TCP server on loopback that keeps what it heard."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0
        self.heard = b""

    async def hear_until(self, stream: anyio.abc.SocketStream, end: bytes) -> None:
        while end not in self.heard:
            self.heard += await stream.receive()


@asynccontextmanager
async def open_origin(handler: Callable[[Origin, anyio.abc.SocketStream], Awaitable[None]]) -> AsyncIterator[Origin]:
    async with await anyio.create_tcp_listener(local_host=LOOPBACK) as listener, anyio.create_task_group() as group:
        origin = Origin(listener.extra(anyio.abc.SocketAttribute.local_port))

        async def handle(stream: anyio.abc.SocketStream) -> None:
            origin.connections += 1
            async with stream:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await handler(origin, stream)

        group.start_soon(listener.serve, handle)
        yield origin
        group.cancel_scope.cancel()


def answering(answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") -> Callable[..., Awaitable[None]]:
    """An origin that hears a head without a body, answers and closes."""

    async def handler(origin: Origin, stream: anyio.abc.SocketStream) -> None:
        await origin.hear_until(stream, b"\r\n\r\n")
        await stream.send(answer)

    return handler


async def echoing(origin: Origin, stream: anyio.abc.SocketStream) -> None:
    async for chunk in stream:
        origin.heard += chunk
        await stream.send(chunk)
    await stream.send(b" and that was all")


LOOPS = [pytest.param(("asyncio", {"use_uvloop": use}), id="uvloop" if use else "asyncio") for use in (False, True)]


class BookDialer:
    def __init__(self, **book: Sequence[str]) -> None:
        self.book = {name.replace("_", "."): [ip_address(text) for text in found] for name, found in book.items()}
        self.routes: dict[str, str] = {}
        self.asked: list[str] = []
        self.tried: list[str] = []
        self.silent: set[str] = set()
        self._direct = DirectDialer(ThreadPoolExecutor(1))

    async def resolve(self, name: Name) -> list[Address]:
        self.asked.append(str(name))
        if str(name) in self.silent:
            await anyio.sleep_forever()
        if str(name) not in self.book:
            raise UnavailableError("egress.name_unresolved", f"The name {name} leads nowhere.")
        return self.book[str(name)]

    async def connect(self, address: Address, port: int) -> socket.socket:
        self.tried.append(str(address))
        if str(address) in self.silent:
            await anyio.sleep_forever()
        return await self._direct.connect(ip_address(self.routes.get(str(address), str(address))), port)


class Store:
    """Decisions in a list. `hold` keeps the store from answering until it is released; `fail` lets it fail so often."""

    def __init__(self) -> None:
        self.decisions: list[EgressDecision] = []
        self.may_answer = anyio.Event()
        self.may_answer.set()
        self.fail = 0

    def hold(self) -> None:
        self.may_answer = anyio.Event()

    async def store(self, decisions: Sequence[EgressDecision]) -> None:
        await self.may_answer.wait()
        if self.fail:
            self.fail -= 1
            raise UnavailableError("store.away", "The store is away.")
        self.decisions.extend(decisions)

    def said(self) -> list[tuple[str, str]]:
        return [(decision.verdict, decision.reason) for decision in self.decisions]


class Egress:
    """One machine's proxy, and how that machine speaks to it."""

    proxy: EgressProxy
    scope: anyio.CancelScope  # what the proxy serves in

    def __init__(
        self, start: Callable[["Egress", EgressRules], None], path: Path, dialer: BookDialer, store: Store
    ) -> None:
        self.dialer = dialer
        self.store = store
        self._start = start
        self._path = path
        self._start(self, ())

    def allow(self, *rules: str) -> None:
        """Begin anew with these: a proxy has those of its birth."""
        self.scope.cancel()
        self._start(self, parse_egress_rules(rules))

    async def dial(self) -> anyio.abc.SocketStream:
        return await anyio.connect_unix(self._path)

    async def ask(self, request: bytes) -> bytes:
        """Send this and read to the end, as a program that keeps its side open would."""
        answer = b""
        async with await self.dial() as stream:
            await stream.send(request)
            with anyio.fail_after(20):
                async for chunk in stream:
                    answer += chunk
        return answer

    async def tunnel(self, target: str, early: bytes = b"") -> anyio.abc.SocketStream:
        stream = await self.dial()
        await stream.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode() + early)
        answer = b""
        with anyio.fail_after(20):
            while not answer.endswith(b"\r\n\r\n"):
                answer += await stream.receive(1)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return stream


@asynccontextmanager
async def open_egress(
    folder: Path, dialer: BookDialer, *, limits: EgressLimits | None = None, queue_limit: int = 64
) -> AsyncIterator[Egress]:
    """The proxy, serving, without any rule."""
    store, path = Store(), folder / "egress.sock"
    async with open_egress_recording(store, queue_limit=queue_limit) as record, anyio.create_task_group() as group:

        def start(egress: Egress, rules: EgressRules) -> None:
            proxy = EgressProxy(MACHINE, rules, record, dialer=dialer, clock=SystemClock(), limits=limits)
            scope, listener = anyio.CancelScope(), listen_for_egress(path)

            async def serve() -> None:
                with scope:
                    await proxy.serve(listener)

            egress.proxy, egress.scope = proxy, scope
            group.start_soon(serve)

        egress = Egress(start, path, dialer, store)
        try:
            yield egress
        finally:
            store.may_answer.set()
            egress.scope.cancel()


def get(url: str, *fields: str, host: str | None = None) -> bytes:
    authority = host or url.partition("://")[2].partition("/")[0]
    return "\r\n".join((f"GET {url} HTTP/1.1", f"Host: {authority}", *fields, "", "")).encode()


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
