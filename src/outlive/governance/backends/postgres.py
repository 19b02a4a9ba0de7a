"""Principals and idempotency keys in PostgreSQL. Each call is one transaction."""

import hmac
import json
from collections.abc import Collection
from pathlib import Path

from outlive.base import (
    BrokenError,
    Clock,
    OperationId,
    PrincipalId,
    UnavailableError,
    new_principal_id,
    to_text,
)
from outlive.governance.idempotency import (
    KEPT_S,
    LEASE_S,
    PURGED_AT_ONCE,
    Answer,
    Claim,
    KeyRow,
    KeyScope,
    decide_claim,
)
from outlive.governance.identity import OWNER_NAME, Principal, hash_token, unknown_token
from outlive.storage.migrate import Migrations, read_migrations
from outlive.storage.postgres import Connection, PostgresDatabase

_KEY = "principal = $1 AND method = $2 AND path = $3 AND key = $4"


def postgres_migrations() -> Migrations:
    return read_migrations("governance", Path(__file__).parent / "migrations" / "postgres")


class PostgresPrincipals:
    def __init__(self, database: PostgresDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def authenticate(self, token: str) -> Principal:
        hashed = hash_token(token)
        row = await self._database.run(
            lambda connection: connection.fetchrow(
                "SELECT t.hash, p.id, p.name, p.kind FROM tokens t JOIN principals p ON p.id = t.principal"
                " WHERE t.hash = $1",
                hashed,
            )
        )
        if row is None or not hmac.compare_digest(row["hash"], hashed):
            raise unknown_token()
        return Principal(PrincipalId(row["id"]), row["name"], row["kind"])

    async def ensure_owner(self, token: str) -> Principal:
        hashed = hash_token(token)
        at = to_text(self._clock.now())

        async def ensure(connection: Connection) -> Principal:
            await connection.execute(
                "INSERT INTO principals (id, name, kind, is_owner, created_at) VALUES ($1, $2, 'person', TRUE, $3)"
                " ON CONFLICT DO NOTHING",
                new_principal_id(),
                OWNER_NAME,
                at,
            )
            # The lock makes those who set a token at the same moment go one after the other.
            row = await connection.fetchrow("SELECT id, name, kind FROM principals WHERE is_owner FOR UPDATE")
            assert row is not None
            owner = Principal(PrincipalId(row["id"]), row["name"], row["kind"])
            await connection.execute("DELETE FROM tokens WHERE principal = $1 AND hash <> $2", owner.id, hashed)
            await connection.execute(
                "INSERT INTO tokens (hash, principal, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                hashed,
                owner.id,
                at,
            )
            held_by = await connection.fetchval("SELECT principal FROM tokens WHERE hash = $1", hashed)
            if held_by != owner.id:
                raise BrokenError("token.taken", f"The owner's token already belongs to {held_by!r}; make a new one.")
            return owner

        return await self._database.write(ensure)


class PostgresIdempotencyKeys:
    def __init__(self, database: PostgresDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, scope: KeyScope, request: bytes) -> Claim | Answer:
        now = self._now()

        async def write(connection: Connection) -> Claim | Answer:
            fresh = decide_claim(None, scope, request, now)
            assert isinstance(fresh, Claim)
            if await _insert(connection, fresh, request, now):
                await _purge(connection, now)
                return fresh
            row = await _find_and_lock(connection, scope)
            if row is None:
                raise UnavailableError("idempotency.race", "This Idempotency-Key expired just now; ask again.")
            claim = decide_claim(row, scope, request, now)
            if isinstance(claim, Claim):
                created_at = row.created_at if claim.operation == row.operation else now
                await _take_over(connection, claim, request, now, created_at)
            return claim

        return await self._database.write(write)

    async def stands_for_other(self, scope: KeyScope, request: bytes) -> bool:
        born_after = self._now() - KEPT_S * 1000
        found = await self._database.run(
            lambda connection: connection.fetchval(
                f"SELECT 1 FROM idempotency_keys WHERE {_KEY} AND request <> $5 AND created_at > $6",  # noqa: S608
                *scope,
                request,
                born_after,
            )
        )
        return found is not None

    async def renew(self, claims: Collection[Claim]) -> None:
        until = self._now() + int(LEASE_S * 1000)
        # In one order everywhere, so that two renewals cannot wait for each other.
        rows = [(*claim.scope, claim.holder, until) for claim in sorted(claims)]
        await self._database.write(
            lambda connection: connection.executemany(
                f"UPDATE idempotency_keys SET lease_until = $6 WHERE {_KEY} AND holder = $5 AND status IS NULL",  # noqa: S608
                rows,
            )
        )

    async def record(self, claim: Claim, answer: Answer) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                f"UPDATE idempotency_keys SET status = $6, headers = $7, body = $8 WHERE {_KEY} AND holder = $5",  # noqa: S608
                *claim.scope,
                claim.holder,
                answer.status,
                json.dumps(answer.headers),
                answer.body,
            )
        )

    async def release(self, claim: Claim) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                f"UPDATE idempotency_keys SET lease_until = 0 WHERE {_KEY} AND holder = $5 AND status IS NULL",  # noqa: S608
                *claim.scope,
                claim.holder,
            )
        )

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


async def _insert(connection: Connection, claim: Claim, request: bytes, now: int) -> bool:
    inserted = await connection.fetchval(
        "INSERT INTO idempotency_keys"
        " (principal, method, path, key, request, operation, holder, lease_until, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING 1",
        *claim.scope,
        request,
        claim.operation,
        claim.holder,
        now + int(LEASE_S * 1000),
        now,
    )
    return inserted is not None


async def _find_and_lock(connection: Connection, scope: KeyScope) -> KeyRow | None:
    row = await connection.fetchrow(
        "SELECT request, operation, lease_until, created_at, status, headers, body FROM idempotency_keys"  # noqa: S608
        f" WHERE {_KEY} FOR UPDATE",
        *scope,
    )
    if row is None:
        return None
    answer = None
    if row["status"] is not None:
        headers = tuple((name, value) for name, value in json.loads(row["headers"]))
        answer = Answer(row["status"], headers, row["body"])
    return KeyRow(row["request"], OperationId(row["operation"]), row["lease_until"], row["created_at"], answer)


async def _take_over(connection: Connection, claim: Claim, request: bytes, now: int, created_at: int) -> None:
    await connection.execute(
        "UPDATE idempotency_keys SET request = $5, operation = $6, holder = $7, lease_until = $8, created_at = $9,"  # noqa: S608
        f" status = NULL, headers = NULL, body = NULL WHERE {_KEY}",
        *claim.scope,
        request,
        claim.operation,
        claim.holder,
        now + int(LEASE_S * 1000),
        created_at,
    )


async def _purge(connection: Connection, now: int) -> None:
    await connection.execute(
        "DELETE FROM idempotency_keys WHERE (principal, method, path, key) IN"
        " (SELECT principal, method, path, key FROM idempotency_keys WHERE created_at <= $1"
        " ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
        now - KEPT_S * 1000,
        PURGED_AT_ONCE,
    )
