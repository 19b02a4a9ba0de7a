"""Principals and idempotency keys in SQLite. Each call is one transaction."""

import hmac
import json
import sqlite3
from collections.abc import Collection
from pathlib import Path

from outlive.base import BrokenError, Clock, OperationId, PrincipalId, new_principal_id, to_text
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
from outlive.storage.sqlite import SqliteDatabase

_KEY = "principal = ? AND method = ? AND path = ? AND key = ?"


def sqlite_migrations() -> Migrations:
    return read_migrations("governance", Path(__file__).parent / "migrations" / "sqlite")


class SqlitePrincipals:
    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def authenticate(self, token: str) -> Principal:
        hashed = hash_token(token)

        def find(connection: sqlite3.Connection) -> Principal | None:
            row = connection.execute(
                "SELECT t.hash, p.id, p.name, p.kind FROM tokens t JOIN principals p ON p.id = t.principal"
                " WHERE t.hash = ?",
                (hashed,),
            ).fetchone()
            return Principal(*row[1:]) if row and hmac.compare_digest(row[0], hashed) else None

        principal = await self._database.read(find)
        if principal is None:
            raise unknown_token()
        return principal

    async def ensure_owner(self, token: str) -> Principal:
        hashed = hash_token(token)
        at = to_text(self._clock.now())

        def ensure(connection: sqlite3.Connection) -> Principal:
            connection.execute(
                "INSERT INTO principals (id, name, kind, is_owner, created_at) VALUES (?, ?, 'person', 1, ?)"
                " ON CONFLICT DO NOTHING",
                (new_principal_id(), OWNER_NAME, at),
            )
            row = connection.execute("SELECT id, name, kind FROM principals WHERE is_owner = 1").fetchone()
            owner = Principal(PrincipalId(row[0]), row[1], row[2])
            connection.execute("DELETE FROM tokens WHERE principal = ? AND hash <> ?", (owner.id, hashed))
            connection.execute(
                "INSERT INTO tokens (hash, principal, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (hashed, owner.id, at),
            )
            [held_by] = connection.execute("SELECT principal FROM tokens WHERE hash = ?", (hashed,)).fetchone()
            if held_by != owner.id:
                raise BrokenError("token.taken", f"The owner's token already belongs to {held_by!r}; make a new one.")
            return owner

        return await self._database.write(ensure)


class SqliteIdempotencyKeys:
    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, scope: KeyScope, request: bytes) -> Claim | Answer:
        now = self._now()

        def write(connection: sqlite3.Connection) -> Claim | Answer:
            claim = decide_claim(_find(connection, scope), scope, request, now)
            if isinstance(claim, Claim):
                _purge(connection, now)
                _put(connection, claim, request, now)
            return claim

        return await self._database.write(write)

    async def stands_for_other(self, scope: KeyScope, request: bytes) -> bool:
        born_after = self._now() - KEPT_S * 1000
        found = await self._database.read(
            lambda connection: connection.execute(
                f"SELECT 1 FROM idempotency_keys WHERE {_KEY} AND request <> ? AND created_at > ?",  # noqa: S608
                (*scope, request, born_after),
            ).fetchone()
        )
        return found is not None

    async def renew(self, claims: Collection[Claim]) -> None:
        until = self._now() + int(LEASE_S * 1000)
        await self._database.write(
            lambda connection: connection.executemany(
                f"UPDATE idempotency_keys SET lease_until = ? WHERE {_KEY} AND holder = ? AND status IS NULL",  # noqa: S608
                [(until, *claim.scope, claim.holder) for claim in claims],
            )
        )

    async def record(self, claim: Claim, answer: Answer) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                f"UPDATE idempotency_keys SET status = ?, headers = ?, body = ? WHERE {_KEY} AND holder = ?",  # noqa: S608
                (answer.status, json.dumps(answer.headers), answer.body, *claim.scope, claim.holder),
            )
        )

    async def release(self, claim: Claim) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                f"UPDATE idempotency_keys SET lease_until = 0 WHERE {_KEY} AND holder = ? AND status IS NULL",  # noqa: S608
                (*claim.scope, claim.holder),
            )
        )

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _find(connection: sqlite3.Connection, scope: KeyScope) -> KeyRow | None:
    row = connection.execute(
        f"SELECT request, operation, lease_until, created_at, status, headers, body FROM idempotency_keys WHERE {_KEY}",  # noqa: S608
        scope,
    ).fetchone()
    if row is None:
        return None
    request, operation, lease_until, created_at, status, headers, body = row
    answer = Answer(status, tuple((name, value) for name, value in json.loads(headers)), body) if status else None
    return KeyRow(request, OperationId(operation), lease_until, created_at, answer)


def _put(connection: sqlite3.Connection, claim: Claim, request: bytes, now: int) -> None:
    # Taken over, the row keeps its birthday; an expired one was purged or is born again here.
    connection.execute(
        "INSERT INTO idempotency_keys"
        " (principal, method, path, key, request, operation, holder, lease_until, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (principal, method, path, key) DO UPDATE SET"
        " request = excluded.request, holder = excluded.holder, lease_until = excluded.lease_until,"
        " created_at = CASE WHEN operation = excluded.operation THEN created_at ELSE excluded.created_at END,"
        " operation = excluded.operation, status = NULL, headers = NULL, body = NULL",
        (*claim.scope, request, claim.operation, claim.holder, now + int(LEASE_S * 1000), now),
    )


def _purge(connection: sqlite3.Connection, now: int) -> None:
    connection.execute(
        "DELETE FROM idempotency_keys WHERE (principal, method, path, key) IN"
        " (SELECT principal, method, path, key FROM idempotency_keys WHERE created_at <= ?"
        " ORDER BY created_at LIMIT ?)",
        (now - KEPT_S * 1000, PURGED_AT_ONCE),
    )
