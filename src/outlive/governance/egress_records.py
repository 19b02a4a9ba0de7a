"""What the egress proxy decided, written down: the record, and the bounded queue between the proxy and its store.

Every connection that is allowed has two records: `allowed` before anything leaves the host, not even the question for
its address; and one that says how it came out (`ended`, `failed`, `denied`). One that is refused at once has one.

Rule 1: nothing is let through unrecorded. The queue is bounded; when it is full the connection waits, and when it
        waited too long it is refused.
Rule 2: a store that is away costs connections, never records: what was taken is offered again until it is stored.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from outlive.base import MachineId, OutliveError

QUEUE_LIMIT = 1_024
_BATCH_LIMIT = 256
_STORE_WITHIN_S = 10.0
_FLUSH_WITHIN_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

_log = logging.getLogger(__name__)

Verdict = Literal["allowed", "denied", "failed", "ended"]


class EgressDecision(NamedTuple):
    """One record. `connection` counts the connections of one run of the machine's proxy and ties their records."""

    machine: MachineId
    at: datetime
    connection: int
    method: str
    host: str
    port: int
    verdict: Verdict
    reason: str
    address: str | None
    bytes_up: int
    bytes_down: int


class EgressDecisions(Protocol):
    """The port: where decisions are kept."""

    async def store(self, decisions: Sequence[EgressDecision]) -> None:
        """Keep these. They may come twice if it fails; `machine`, `at` and `connection` tell."""
        ...


Record = Callable[[EgressDecision], Awaitable[None]]


@asynccontextmanager
async def open_egress_recording(decisions: EgressDecisions, *, queue_limit: int = QUEUE_LIMIT) -> AsyncIterator[Record]:
    """`record` for one machine's proxy. It returns when the decision is in the queue, and waits while that is full.
    Leaving stores what waits, within a few seconds."""
    send, receive = anyio.create_memory_object_stream[EgressDecision](queue_limit)
    is_flushed = anyio.Event()
    # A machine that is ended cancels its proxy, and this with it: what was decided until then is stored all the same.
    storing = anyio.CancelScope(shield=True)

    async def store_all() -> None:
        with storing:
            await _store_all(receive, decisions)
            is_flushed.set()

    with send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(store_all)
            try:
                yield send.send
            finally:
                send.close()
                with anyio.move_on_after(_FLUSH_WITHIN_S, shield=True):
                    await is_flushed.wait()
                if not is_flushed.is_set():
                    waiting = receive.statistics().current_buffer_used
                    _log.error("egress decisions were not stored before the end: %d and a batch", waiting)
                storing.cancel()


async def _store_all(receive: MemoryObjectReceiveStream[EgressDecision], decisions: EgressDecisions) -> None:
    async for first in receive:
        batch = [first]
        while len(batch) < _BATCH_LIMIT and receive.statistics().current_buffer_used:
            batch.append(receive.receive_nowait())
        await _store_until_kept(decisions, batch)


async def _store_until_kept(decisions: EgressDecisions, batch: Sequence[EgressDecision]) -> None:
    pause = _FIRST_PAUSE_S
    while True:
        try:
            with anyio.fail_after(_STORE_WITHIN_S):
                return await decisions.store(batch)
        except (OutliveError, TimeoutError) as error:
            _log.warning("%d egress decisions are not stored yet: %s", len(batch), error)
        await anyio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
