"""The egress proxy of one machine: the only way out of it. One unix socket; whoever speaks on it is that machine.

    request ─ read_head ─ decide(host) ─ record ─ resolve ─ decide_address ─ connect ─ tunnel or forward ─ record
                 400          403                    502         403            502

Rule 1: nothing is resolved, connected to or sent before the host was allowed and that was recorded.
Rule 2: the address that was judged is the address that is connected to.
Rule 3: the rules are those that the machine was born with, and hold for as long as the proxy serves.
Rule 4: everything that waits has a deadline, and one machine holds a bounded number of connections.
"""

import asyncio
import itertools
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import anyio
import h11
from anyio.lowlevel import checkpoint

from outlive.base import Clock, MachineId, UnavailableError
from outlive.governance.egress import Address, Deny, EgressRules, decide, decide_address, parse_host, unmapped
from outlive.governance.egress_dial import Dialer
from outlive.governance.egress_forward import Forwarding
from outlive.governance.egress_http import (
    ESTABLISHED,
    HEAD_LIMIT,
    Head,
    Refusal,
    bad_request,
    denied,
    read_head,
    too_slow,
    unreachable,
)
from outlive.governance.egress_records import EgressDecision, Record, Verdict
from outlive.governance.egress_shared import EgressPlaces
from outlive.governance.egress_splice import Idle, Tally, splice

_BACKLOG = 128
_LAST_WORD_S = 2.0
_LEFT_UNREAD_LIMIT = 1024 * 1024
_ACCEPT_PAUSE_S = 0.1
_HOST_RECORDED = 260  # characters: longer than any name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EgressLimits:
    connections: int = 256  # of one machine; one more is answered with 503
    head_s: float = 15.0
    resolve_s: float = 10.0
    addresses: int = 4  # tried in turn, each for `connect_s`
    connect_s: float = 5.0
    idle_s: float = 600.0
    record_s: float = 10.0


@dataclass(slots=True)
class _Connection:
    """What is known of one connection; `outcome` is what its last record will say."""

    number: int
    tally: Tally = field(default_factory=Tally)
    head: Head | None = None
    address: Address | None = None
    outcome: tuple[Verdict, str] = ("ended", "closed")
    is_settled: bool = False  # its last record is made


class EgressProxy:
    """Serves one machine. `serve` in a task group of the node; leaving it ends all connections."""

    def __init__(
        self,
        machine: MachineId,
        rules: EgressRules,
        record: Record,
        *,
        dialer: Dialer,
        clock: Clock,
        limits: EgressLimits | None = None,
        places: EgressPlaces | None = None,
    ) -> None:
        self._machine = machine
        self._rules = rules
        self._record = record
        self._dialer = dialer
        self._clock = clock
        self._limits = limits or EgressLimits()
        self._places = places or EgressPlaces(2 * self._limits.connections, machines=1)
        self._numbers = itertools.count(1)
        self._open: dict[int, _Connection] = {}

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def serve(self, listener: socket.socket) -> None:
        """Accept on a listening, non-blocking unix socket until cancelled. Closes it."""
        loop = asyncio.get_running_loop()
        with listener:
            async with anyio.create_task_group() as group:
                while True:
                    try:
                        near, _ = await loop.sock_accept(listener)
                    except OSError as error:  # no descriptors left: connections wait in the backlog meanwhile
                        _log.warning("the egress proxy of %s cannot accept: %s", self._machine, error)
                        await anyio.sleep(_ACCEPT_PAUSE_S)
                        continue
                    if (full := self._take_place()) is not None:
                        _refuse_at_once(near, full)
                    else:
                        connection = _Connection(next(self._numbers))
                        self._open[connection.number] = connection
                        group.start_soon(self._keep, near, connection)
                    await checkpoint()  # a machine that dials without pause must not keep the others from theirs

    def _take_place(self) -> str | None:
        """For one more connection. Why there is none; None if it was taken."""
        held = len(self._open)
        if held >= self._limits.connections:
            return f"this machine has {held} connections open, and that is the limit.\nClose some, then try again."
        if not self._places.take(held):
            return (
                f"this machine has {held} connections open, and its host has no place for more of them now.\n"
                "Close some, or try again later."
            )
        return None

    async def _keep(self, near: socket.socket, connection: _Connection) -> None:
        try:
            with near:
                await self._handle(near, connection)
        finally:
            try:
                if connection.head is not None and not connection.is_settled:
                    with anyio.CancelScope(shield=True):
                        await self._note(connection, *connection.outcome)
            finally:
                self._places.give_back(len(self._open))
                del self._open[connection.number]

    async def _handle(self, near: socket.socket, connection: _Connection) -> None:
        server = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        head = await self._read_head(near, server)
        if head is None:
            return
        if isinstance(head, Refusal):
            return await self._refuse(near, connection, head)
        verdict = decide(self._rules, head.host, head.port)
        connection.head = head
        if isinstance(verdict, Deny):
            return await self._refuse(near, connection, denied(head.host, head.port, verdict))
        if not await self._note(connection, "allowed", str(verdict.rule)):
            return await self._refuse(near, connection, _UNRECORDED)
        far = await self._reach(head, connection)
        if isinstance(far, Refusal):
            return await self._refuse(near, connection, far)
        with far:
            await self._carry(near, server, far, head, connection)

    async def _refuse(self, near: socket.socket, connection: _Connection, refusal: Refusal) -> None:
        """Record it, then say it. What the machine could have put right is denied, the rest failed."""
        connection.outcome = ("denied" if refusal.status < 500 else "failed", refusal.why)
        await self._note(connection, *connection.outcome)
        connection.is_settled = True
        await _answer(near, refusal)

    async def _read_head(self, near: socket.socket, server: h11.Connection) -> Head | Refusal | None:
        """What is asked for; None if the machine went without asking."""
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(self._limits.head_s):
                while (event := server.next_event()) is h11.NEED_DATA:
                    server.receive_data(await loop.sock_recv(near, HEAD_LIMIT))
        except TimeoutError:
            return Refusal(408, "Request Timeout", "http_request_error", "request_slow", "no whole request came.")
        except h11.RemoteProtocolError as error:
            refusal = bad_request(str(error))
            is_too_big = error.error_status_hint == 431
            return refusal._replace(status=431, phrase="Request Header Fields Too Large") if is_too_big else refusal
        except OSError:
            return None
        return read_head(event) if isinstance(event, h11.Request) else None

    async def _reach(self, head: Head, connection: _Connection) -> socket.socket | Refusal:
        """A connection to the first address that is allowed and answers."""
        addresses = await self._resolve(head)
        if isinstance(addresses, Refusal):
            return addresses
        refusal = unreachable("name_unresolved", f"the name {head.host} leads nowhere.")
        for address in addresses[: self._limits.addresses]:
            verdict = decide_address(self._rules, address, head.port)
            if isinstance(verdict, Deny):
                connection.address = connection.address or address
                refusal = denied(head.host, head.port, verdict)
                continue
            connection.address = address
            try:
                with anyio.fail_after(self._limits.connect_s):
                    return await self._dialer.connect(address, head.port)
            except UnavailableError as error:
                refusal = unreachable("unreachable", f"{head.host}:{head.port} cannot be reached: {error.message}")
            except TimeoutError:
                refusal = too_slow("connect_deadline", f"{head.host}:{head.port} does not answer.")
        return refusal

    async def _resolve(self, head: Head) -> list[Address] | Refusal:
        host = parse_host(head.host)
        assert host is not None, "decide denies what is no host"
        if isinstance(host, IPv4Address | IPv6Address):
            return [host]
        try:
            with anyio.fail_after(self._limits.resolve_s):
                return [unmapped(address) for address in await self._dialer.resolve(host)]
        except UnavailableError as error:
            return unreachable("name_unresolved", error.message)
        except TimeoutError:
            return too_slow("name_deadline", f"the address of {head.host} was not found in time.")

    async def _carry(
        self, near: socket.socket, server: h11.Connection, far: socket.socket, head: Head, connection: _Connection
    ) -> None:
        idle = Idle(self._limits.idle_s)
        forwarding = Forwarding(near, server, far, connection.tally, idle)
        refusal: Refusal | None = None
        with idle.scope:
            if head.is_tunnel:
                await _tunnel(near, server, far, connection.tally, idle)
            else:
                refusal = await forwarding.run(head)
            connection.outcome = ("ended", "done")
        if idle.scope.cancelled_caught:
            connection.outcome = ("ended", "idle")
            if not head.is_tunnel and not forwarding.has_answered:
                refusal = too_slow("answer_deadline", f"{head.host}:{head.port} gave no answer in time.")
        if refusal is not None:
            await self._refuse(near, connection, refusal)

    async def _note(self, connection: _Connection, verdict: Verdict, reason: str) -> bool:
        """Record; whether that was possible in time."""
        head = connection.head or Head("", "", 0, b"", [])
        decision = EgressDecision(
            machine=self._machine,
            at=self._clock.now(),
            connection=connection.number,
            method=head.method[:32],
            host=head.host[:_HOST_RECORDED],
            port=head.port,
            verdict=verdict,
            reason=reason,
            address=None if connection.address is None else str(connection.address),
            bytes_up=connection.tally.up,
            bytes_down=connection.tally.down,
        )
        with anyio.move_on_after(self._limits.record_s):
            await self._record(decision)
            return True
        _log.error("the egress of %s waits for its records: %r is not recorded", self._machine, decision)
        return False


def listen_for_egress(path: Path) -> socket.socket:
    """A listener for `serve`, at a path that only the owner of this process can reach. What was there is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        path.unlink(missing_ok=True)
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


_UNRECORDED = Refusal(
    503,
    "Service Unavailable",
    "proxy_internal_error",
    "unrecorded",
    "this connection cannot be recorded now, so it is not let through.\nTry again later.",
)


def _refuse_at_once(near: socket.socket, text: str) -> None:
    with near:
        with suppress(OSError):
            near.recv(HEAD_LIMIT)  # what was asked is gone before we close: closing on it would be a reset
        with suppress(OSError):  # the buffer of a new socket has room for it
            near.send(Refusal(503, "Too Many Connections", "connection_limit_reached", "too_many", text).to_bytes())


async def _tunnel(near: socket.socket, server: h11.Connection, far: socket.socket, tally: Tally, idle: Idle) -> None:
    loop = asyncio.get_running_loop()
    early = server.trailing_data[0]  # what came right behind the request is for the other end
    with suppress(OSError):
        await loop.sock_sendall(near, ESTABLISHED)
        if early:
            await loop.sock_sendall(far, early)
            tally.count_up(len(early))
        await splice(near, far, tally, idle)


async def _answer(near: socket.socket, refusal: Refusal) -> None:
    """Say it, then read on for a moment: closing on unread bytes would cut our own words off."""
    loop = asyncio.get_running_loop()
    with suppress(OSError), anyio.move_on_after(_LAST_WORD_S):
        await loop.sock_sendall(near, refusal.to_bytes())
        near.shutdown(socket.SHUT_WR)
        unread = 0
        while (data := await loop.sock_recv(near, HEAD_LIMIT)) and unread < _LEFT_UNREAD_LIMIT:
            unread += len(data)
