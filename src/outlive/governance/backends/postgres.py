"""Principals and idempotency keys in PostgreSQL. Each call is one transaction."""

import hmac
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from outlive.base import (
    Clock,
    OperationId,
    PrincipalId,
    UnavailableError,
    new_principal_id,
    to_text,
)
from outlive.governance.backends.principal_rows import COLUMNS, rights_text, to_principal
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
from outlive.governance.identity import (
    ALL_RIGHTS,
    OWNER_NAME,
    Principal,
    PrincipalKind,
    Rights,
    check_name,
    deleted_meanwhile,
    hash_token,
    name_key,
    name_taken,
    owner_stays,
    token_taken,
    unknown_principal,
    unknown_token,
)
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
                f"SELECT t.hash, {COLUMNS} FROM tokens t JOIN principals p ON p.id = t.principal"  # noqa: S608
                " WHERE t.hash = $1 AND p.deleted_at IS NULL",
                hashed,
            )
        )
        if row is None or not hmac.compare_digest(row["hash"], hashed):
            raise unknown_token()
        return to_principal(tuple(row)[1:])

    async def ensure_owner(self, token: str) -> Principal:
        hashed = hash_token(token)
        at = to_text(self._clock.now())

        async def ensure(connection: Connection) -> Principal:
            await connection.execute(
                "INSERT INTO principals (id, name, name_key, kind, rights, is_owner, created_at)"
                " VALUES ($1, $2, $3, 'person', $4, TRUE, $5) ON CONFLICT DO NOTHING",
                new_principal_id(),
                OWNER_NAME,
                name_key(OWNER_NAME),
                rights_text(ALL_RIGHTS),
                at,
            )
            # The lock makes those who set a token at the same moment go one after the other.
            owner = await _find_principal(connection, "p.is_owner FOR UPDATE")
            assert owner is not None
            await connection.execute("DELETE FROM tokens WHERE principal = $1 AND hash <> $2", owner.id, hashed)
            await _add_token(connection, hashed, owner, at)
            return owner

        return await self._database.write(ensure)

    async def create(self, id: PrincipalId, *, name: str, kind: PrincipalKind, rights: Rights, token: str) -> Principal:
        at = to_text(self._clock.now())

        async def make(connection: Connection) -> Principal:
            await connection.execute(
                "INSERT INTO principals (id, name, name_key, kind, rights, created_at)"
                " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
                id,
                check_name(name),
                name_key(name),
                kind,
                rights_text(rights),
                at,
            )
            made = await _find_principal(connection, "p.id = $1 FOR UPDATE", id)
            if made is None:
                raise name_taken(name)
            if made.deleted_at is not None:
                raise deleted_meanwhile(made)
            await _add_token(connection, hash_token(token), made, at)
            return made

        return await self._database.write(make)

    async def get(self, id: PrincipalId) -> Principal:
        found = await self._database.run(lambda connection: _find_principal(connection, "p.id = $1", id))
        if found is None:
            raise unknown_principal(id)
        return found

    async def find(self, name: str) -> Principal:
        key = name_key(name)
        found = await self._database.run(
            lambda connection: _find_principal(connection, "p.name_key = $1 AND p.deleted_at IS NULL", key)
        )
        if found is None:
            raise unknown_principal(name)
        return found

    async def list(self, *, limit: int, before: PrincipalId | None = None) -> Sequence[Principal]:
        rows = await self._database.run(
            lambda connection: connection.fetch(
                f"SELECT {COLUMNS} FROM principals p"  # noqa: S608
                ' WHERE p.deleted_at IS NULL AND ($1::text IS NULL OR p.id COLLATE "C" < $1)'
                ' ORDER BY p.id COLLATE "C" DESC LIMIT $2',
                before,
                limit,
            )
        )
        return [to_principal(tuple(row)) for row in rows]

    async def delete(self, id: PrincipalId) -> Principal:
        at = to_text(self._clock.now())

        async def remove(connection: Connection) -> Principal:
            found = await _find_principal(connection, "p.id = $1 FOR UPDATE", id)
            if found is None:
                raise unknown_principal(id)
            if found.is_owner:
                raise owner_stays()
            await connection.execute("DELETE FROM tokens WHERE principal = $1", id)
            await connection.execute(
                "UPDATE principals SET deleted_at = COALESCE(deleted_at, $2) WHERE id = $1", id, at
            )
            return found._replace(deleted_at=found.deleted_at or at)

        return await self._database.write(remove)


async def _find_principal(connection: Connection, condition: str, *values: str) -> Principal | None:
    row = await connection.fetchrow(f"SELECT {COLUMNS} FROM principals p WHERE {condition}", *values)  # noqa: S608
    return None if row is None else to_principal(tuple(row))


async def _add_token(connection: Connection, hashed: bytes, principal: Principal, at: str) -> None:
    await connection.execute(
        "INSERT INTO tokens (hash, principal, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        hashed,
        principal.id,
        at,
    )
    held_by = await connection.fetchval("SELECT principal FROM tokens WHERE hash = $1", hashed)
    if held_by != principal.id:
        raise token_taken(principal, held_by)


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
