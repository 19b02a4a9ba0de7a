"""Principals and idempotency keys in SQLite. Each call is one transaction."""

import hmac
import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path

from outlive.base import Clock, OperationId, PrincipalId, new_principal_id, to_text
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
                f"SELECT t.hash, {COLUMNS} FROM tokens t JOIN principals p ON p.id = t.principal"  # noqa: S608
                " WHERE t.hash = ? AND p.deleted_at IS NULL",
                (hashed,),
            ).fetchone()
            return to_principal(row[1:]) if row and hmac.compare_digest(row[0], hashed) else None

        principal = await self._database.read(find)
        if principal is None:
            raise unknown_token()
        return principal

    async def ensure_owner(self, token: str) -> Principal:
        hashed = hash_token(token)
        at = to_text(self._clock.now())

        def ensure(connection: sqlite3.Connection) -> Principal:
            connection.execute(
                "INSERT INTO principals (id, name, name_key, kind, rights, is_owner, created_at)"
                " VALUES (?, ?, ?, 'person', ?, 1, ?) ON CONFLICT DO NOTHING",
                (new_principal_id(), OWNER_NAME, name_key(OWNER_NAME), rights_text(ALL_RIGHTS), at),
            )
            owner = _find_principal(connection, "p.is_owner = 1")
            assert owner is not None
            connection.execute("DELETE FROM tokens WHERE principal = ? AND hash <> ?", (owner.id, hashed))
            _add_token(connection, hashed, owner, at)
            return owner

        return await self._database.write(ensure)

    async def create(self, id: PrincipalId, *, name: str, kind: PrincipalKind, rights: Rights, token: str) -> Principal:
        at = to_text(self._clock.now())

        def make(connection: sqlite3.Connection) -> Principal:
            connection.execute(
                "INSERT INTO principals (id, name, name_key, kind, rights, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (id, check_name(name), name_key(name), kind, rights_text(rights), at),
            )
            made = _find_principal(connection, "p.id = ?", id)
            if made is None:
                raise name_taken(name)
            if made.deleted_at is not None:
                raise deleted_meanwhile(made)
            _add_token(connection, hash_token(token), made, at)
            return made

        return await self._database.write(make)

    async def get(self, id: PrincipalId) -> Principal:
        found = await self._database.read(lambda connection: _find_principal(connection, "p.id = ?", id))
        if found is None:
            raise unknown_principal(id)
        return found

    async def find(self, name: str) -> Principal:
        key = name_key(name)
        found = await self._database.read(
            lambda connection: _find_principal(connection, "p.name_key = ? AND p.deleted_at IS NULL", key)
        )
        if found is None:
            raise unknown_principal(name)
        return found

    async def list(self, *, limit: int, before: PrincipalId | None = None) -> Sequence[Principal]:
        rows = await self._database.read(
            lambda connection: connection.execute(
                f"SELECT {COLUMNS} FROM principals p WHERE p.deleted_at IS NULL AND (? IS NULL OR p.id < ?)"  # noqa: S608
                " ORDER BY p.id DESC LIMIT ?",
                (before, before, limit),
            ).fetchall()
        )
        return [to_principal(row) for row in rows]

    async def delete(self, id: PrincipalId) -> Principal:
        at = to_text(self._clock.now())

        def remove(connection: sqlite3.Connection) -> Principal:
            found = _find_principal(connection, "p.id = ?", id)
            if found is None:
                raise unknown_principal(id)
            if found.is_owner:
                raise owner_stays()
            connection.execute("DELETE FROM tokens WHERE principal = ?", (id,))
            connection.execute("UPDATE principals SET deleted_at = COALESCE(deleted_at, ?) WHERE id = ?", (at, id))
            return found._replace(deleted_at=found.deleted_at or at)

        return await self._database.write(remove)


def _find_principal(connection: sqlite3.Connection, condition: str, *values: str) -> Principal | None:
    row = connection.execute(f"SELECT {COLUMNS} FROM principals p WHERE {condition}", values).fetchone()  # noqa: S608
    return to_principal(row) if row else None


def _add_token(connection: sqlite3.Connection, hashed: bytes, principal: Principal, at: str) -> None:
    connection.execute(
        "INSERT INTO tokens (hash, principal, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (hashed, principal.id, at),
    )
    [held_by] = connection.execute("SELECT principal FROM tokens WHERE hash = ?", (hashed,)).fetchone()
    if held_by != principal.id:
        raise token_taken(principal, held_by)


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
