"""Idempotency keys: a request that is sent again is not done again.

A key is claimed, durably, before anything is done. The claim holds the operation id that all the request makes is
derived from, so whoever runs the request again after a crash makes the same things, and the log recognises them.

    claim ──> act(operation) ──> record the answer      the same request again: the recorded answer
      │            └─ failed (5xx, 429) ──> release     the same request again: acts, with the same operation
      └─ process dies: the lease runs out               the same request again: acts, with the same operation

Rule 1: a key stands for one body. With another body it is refused, whatever became of the first.
Rule 2: a secret is not recorded. It is in the first answer alone; the same request again gets the rest of it.
Rule 3: the lease only keeps two from doing the work at once; that nothing is done twice is the operation id's doing.
        So a clock that is off, or a holder that sleeps through its lease, costs time and never truth.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Protocol

import anyio

from outlive.base import (
    ConflictError,
    CrashPoint,
    OperationId,
    OutliveError,
    PrincipalId,
    new_operation_id,
    reach,
)

LEASE_S = 5.0
RENEW_S = 2.0
KEPT_S = 24 * 60 * 60
PURGED_AT_ONCE = 16  # expired keys that go with each claim: more than come, so they do not pile up
_RELEASE_S = 2.0

_log = logging.getLogger(__name__)


class KeyScope(NamedTuple):
    """What a key is unique in, and the key."""

    principal: PrincipalId
    method: str
    path: str
    key: str


class Answer(NamedTuple):
    """What a request was answered with."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    kept: bytes | None = None
    """What is recorded in place of a body that holds a secret: whoever asks again gets this."""

    @property
    def to_record(self) -> "Answer":
        return self if self.kept is None else Answer(self.status, self.headers, self.kept)

    @property
    def is_final(self) -> bool:
        """Whether the same request would get the same answer again. Our own failures and `slow down` are not final."""
        return self.status < 500 and self.status != 429


class Claim(NamedTuple):
    """The right to do a request, until the lease runs out. `holder` tells this claim from a later one of the key."""

    scope: KeyScope
    operation: OperationId
    holder: str


class KeyRow(NamedTuple):
    """What is stored under a key. Times are in milliseconds since 1970."""

    request: bytes
    operation: OperationId
    lease_until: int
    created_at: int
    answer: Answer | None


class IdempotencyKeys(Protocol):
    """The port: rows and transactions. What a row means is decided by `decide_claim`."""

    async def claim(self, scope: KeyScope, request: bytes) -> Claim | Answer:
        """The right to act, or the answer if it was done before. `request` is the hash of the body. Durable when it
        returns. `conflict` if the key stands for another body, or is being worked on."""
        ...

    async def stands_for_other(self, scope: KeyScope, request: bytes) -> bool:
        """Whether the key stands for another body now. Takes nothing."""
        ...

    async def renew(self, claims: Collection[Claim]) -> None:
        """Put off the end of these leases. A claim that somebody else has taken over is left alone."""
        ...

    async def record(self, claim: Claim, answer: Answer) -> None:
        """Keep the answer for whoever asks again. Changes nothing if somebody else has taken over."""
        ...

    async def release(self, claim: Claim) -> None:
        """End the lease now. The key and its operation stay."""
        ...


def decide_claim(row: KeyRow | None, scope: KeyScope, request: bytes, now: int) -> Claim | Answer:
    """What a claim of a key comes to, given what is stored under it. Pure but for the new ids."""
    if row is None or row.created_at + KEPT_S * 1000 <= now:
        return Claim(scope, new_operation_id(), secrets.token_hex(8))
    if row.request != request:
        raise _reused()
    if row.answer is not None:
        return row.answer
    if row.lease_until > now:
        raise ConflictError(
            "idempotency.in_flight",
            "The first request with this Idempotency-Key is still under way; ask again.",
            retry_after_s=1,
        )
    return Claim(scope, row.operation, secrets.token_hex(8))


def _reused() -> ConflictError:
    return ConflictError("idempotency.key_reused", "This Idempotency-Key was used with another body; take a new key.")


class Idempotency:
    """Runs requests under their keys and keeps their leases alive. Made by `open_idempotency`."""

    def __init__(self, keys: IdempotencyKeys) -> None:
        self._keys = keys
        self._held: dict[str, Claim] = {}

    async def run(
        self, scope: KeyScope, request: bytes, act: Callable[[OperationId], Awaitable[Answer]]
    ) -> tuple[Answer, bool]:
        """The answer of `act`, or the one it gave before; and whether it is from before."""
        claim = await self._keys.claim(scope, request)
        if isinstance(claim, Answer):
            return claim, True
        reach(CrashPoint.API_AFTER_CLAIM)
        self._held[claim.holder] = claim
        try:
            answer = await act(claim.operation)
            reach(CrashPoint.API_BEFORE_RECORD)
            if answer.is_final:
                await self._keys.record(claim, answer.to_record)
            else:
                await self._release(claim)
        except BaseException:
            await self._release(claim)
            raise
        finally:
            del self._held[claim.holder]
        reach(CrashPoint.API_BEFORE_ANSWER)
        return answer, False

    async def refuse_other(self, scope: KeyScope, request: bytes) -> None:
        """`conflict` if the key stands for another body: for a request that will not be run."""
        if await self._keys.stands_for_other(scope, request):
            raise _reused()

    async def renew_forever(self) -> None:
        while True:
            await anyio.sleep(RENEW_S)
            if not self._held:
                continue
            try:
                with anyio.fail_after(LEASE_S - RENEW_S):
                    await self._keys.renew(tuple(self._held.values()))
            except (OutliveError, TimeoutError) as error:
                # Somebody may take over, with the same operation: see rule 3.
                _log.warning("leases of %d idempotency keys were not renewed: %s", len(self._held), error)

    async def _release(self, claim: Claim) -> None:
        # If this fails too, the lease runs out by itself.
        with suppress(OutliveError), anyio.move_on_after(_RELEASE_S, shield=True):
            await self._keys.release(claim)


@asynccontextmanager
async def open_idempotency(keys: IdempotencyKeys) -> AsyncIterator[Idempotency]:
    """`Idempotency` with the one task that renews its leases; the task ends with the context."""
    idempotency = Idempotency(keys)
    async with anyio.create_task_group() as group:
        group.start_soon(idempotency.renew_forever)
        try:
            yield idempotency
        finally:
            group.cancel_scope.cancel()
