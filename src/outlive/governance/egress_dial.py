"""How the egress proxy reaches the world: names to addresses, and connections to addresses.

The port takes the two steps apart so that the proxy judges every address between them, and connects to exactly the
one it judged: a name that leads elsewhere when it is asked for again (DNS rebinding) gains nothing. A dialer that goes
through another proxy keeps to this: it resolves, and asks that proxy for the address.
"""

import asyncio
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import IPv6Address, ip_address
from typing import Protocol

import anyio

from outlive.base import UnavailableError
from outlive.governance.egress import Address, Name

_LOOKUPS_AT_ONCE = 4


class Dialer(Protocol):
    async def resolve(self, name: Name) -> list[Address]:
        """Where a name leads, best first. `unavailable` if nowhere. The caller sets the deadline."""
        ...

    async def connect(self, address: Address, port: int) -> socket.socket:
        """A connected, non-blocking stream socket. `unavailable` if there is none to be had."""
        ...


class DirectDialer:
    """Asks the host's resolver and connects directly. One per machine; the threads may be shared.

    A lookup in the host's resolver cannot be stopped. Its place is free again only when it has really ended, so a
    machine that asks for names with slow answers takes `_LOOKUPS_AT_ONCE` threads and no more.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._places = anyio.Semaphore(_LOOKUPS_AT_ONCE)

    async def resolve(self, name: Name) -> list[Address]:
        loop = asyncio.get_running_loop()
        await self._places.acquire()
        lookup = self._threads.submit(_look_up, str(name))

        def give_place_back(_: Future[list[Address]]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._places.release)

        lookup.add_done_callback(give_place_back)
        try:
            return await asyncio.wrap_future(lookup)
        except OSError as error:
            raise UnavailableError("egress.name_unresolved", f"The name {name} leads nowhere: {error}.") from error

    async def connect(self, address: Address, port: int) -> socket.socket:
        family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
        try:
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:  # no descriptors left
            raise UnavailableError("egress.unreachable", f"{address} port {port}: {error}.") from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
        except OSError as error:
            connection.close()
            raise UnavailableError("egress.unreachable", f"{address} port {port}: {error}.") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _look_up(name: str) -> list[Address]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    # A zone (`fe80::1%2`) belongs to an interface of the host; without it the address is judged all the same.
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
