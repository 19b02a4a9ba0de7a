"""A PostgreSQL database: its bounded pool, its transactions, and what its errors mean here.

Rule 1: a transaction that lost a race (serialization, deadlock) is run again here, a few times; so its work must not
        keep anything from a run that failed.
Rule 2: a write is durable when it returns: every connection has synchronous_commit on, whatever the server's default.
Rule 3: every wait has a deadline: for a connection of the pool, and for each command.
Rule 4: work leaves no state in its session (no SET, no LISTEN, no session locks): connections go back as they are.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

import anyio
import asyncpg
from asyncpg.pool import PoolConnectionProxy

from outlive.base import BrokenError, DeadlineError, ExhaustedError, InvalidError, OutliveError, UnavailableError

T = TypeVar("T")
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Work = Callable[[Connection], Awaitable[T]]

POOL_SIZE = 8
ACQUIRE_S = 10.0
COMMAND_S = 30.0
RACES_LIMIT = 5  # runs of a transaction that loses races

VENDOR_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
_RACES = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.InvalidCachedStatementError)

_AWAY = UnavailableError, "storage.unreachable", "The database cannot be reached; try again"
_FULL = ExhaustedError, "storage.full", "The database cannot take more; make room"
_DAMAGED = BrokenError, "storage.damaged", "The database is damaged; restore it from a copy"
_BY_STATE: dict[str, tuple[type[OutliveError], str, str]] = {
    # The longest prefix of an SQLSTATE that is in here decides.
    "08": _AWAY,
    "25006": _AWAY,  # read-only: a standby that was not promoted yet
    "25P03": _AWAY,
    "53": _FULL,
    "53300": (UnavailableError, "storage.too_many_connections", "The database takes no more connections; try again"),
    "57P": _AWAY,
    "57014": (DeadlineError, "storage.slow", "The database took too long"),
    "40": (UnavailableError, "storage.race", "The database was too busy with the same rows; try again"),
    "55P03": (UnavailableError, "storage.locked", "The database is locked by somebody else; try again"),
    "28": (BrokenError, "storage.credentials", "The database does not know this user or password; check the settings"),
    "3D": (BrokenError, "storage.missing", "There is no such database; make it, or check the settings"),
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
    "": (BrokenError, "storage.refused", "The database refused a statement"),
}


def to_outlive_error(error: BaseException) -> OutliveError:
    """What an error of PostgreSQL or of its driver means to those who do not know them.

    The vendor's own words stay behind, as the cause: they may hold values of a statement, which are not ours to tell.
    """
    if isinstance(error, TimeoutError):
        return DeadlineError("storage.slow", "The database did not answer in time.")
    if isinstance(error, asyncpg.DataError):
        return InvalidError(
            "storage.value", f"The database cannot take one of these values (SQLSTATE {error.sqlstate})."
        )
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        kind, code, message = next(_BY_STATE[state[:n]] for n in range(5, -1, -1) if state[:n] in _BY_STATE)
        return kind(code, f"{message} (SQLSTATE {state or 'unknown'}).")
    kind, code, message = _AWAY
    return kind(code, f"{message} ({type(error).__name__}).")


async def _leave_as_is(_: object) -> None:
    """Instead of the driver's reset of a session, which would cost a round trip each time: see rule 4."""


class PostgresDatabase:
    """Transactions on one database, each on a connection of the pool. Made by `open_postgres`."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction; durable when this returns. Run again when it loses a race."""

        async def transaction(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self.run(transaction)

    async def run(self, work: Work[T]) -> T:
        """Run `work` on a connection, each statement in a transaction of its own unless it makes one."""
        for races_left in reversed(range(RACES_LIMIT)):
            try:
                return await self._use(work)
            except _RACES as error:
                if not races_left:
                    raise to_outlive_error(error) from error
                await anyio.sleep(0.001 * 4 ** (RACES_LIMIT - races_left))
            except VENDOR_ERRORS as error:
                raise to_outlive_error(error) from error
        raise AssertionError("not reached")

    async def _use(self, work: Work[T]) -> T:
        async with self._pool.acquire(timeout=ACQUIRE_S) as connection:
            return await work(connection)

    @asynccontextmanager
    async def hold(self) -> "AsyncIterator[PostgresDatabase]":
        """The same database over one connection that stays with the caller, which asks for one thing at a time: for
        those whom taking and giving back a connection costs as much as what they do with it."""
        held = _HeldConnection(self._pool)
        try:
            yield held
        finally:
            await held.release()


class _HeldConnection(PostgresDatabase):
    """A connection that is given back when something fails on it, and taken anew for the next work."""

    _connection: "Connection | None" = None

    async def _use(self, work: Work[T]) -> T:
        if self._connection is None or self._connection.is_closed():
            await self.release()
            self._connection = await self._pool.acquire(timeout=ACQUIRE_S)
        try:
            return await work(self._connection)
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await self._pool.release(connection, timeout=ACQUIRE_S)


@asynccontextmanager
async def open_postgres(
    dsn: str, *, pool_size: int = POOL_SIZE, command_timeout_s: float = COMMAND_S
) -> AsyncIterator[PostgresDatabase]:
    """The database at `dsn`. Its connections end with the context."""
    try:
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=pool_size,
            timeout=ACQUIRE_S,
            command_timeout=command_timeout_s,
            reset=_leave_as_is,
            server_settings={
                "application_name": "outlive",
                "synchronous_commit": "on",
                "statement_timeout": str(round(command_timeout_s * 1000)),
                # All statements here are look-ups by key: planning them anew for each call costs more than it finds.
                "plan_cache_mode": "force_generic_plan",
                "jit": "off",
            },
        )
    except (asyncpg.exceptions.ClientConfigurationError, ValueError, OverflowError):
        # Not even as a cause: what could not be read may be a piece of the password.
        raise InvalidError(
            "storage.url",
            "The address of the database cannot be read: postgresql://USER:PASSWORD@HOST:PORT/NAME, "
            "with %23 for # and %2F for / in the password.",
        ) from None
    except VENDOR_ERRORS as error:
        raise to_outlive_error(error) from error
    try:
        yield PostgresDatabase(pool)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(ACQUIRE_S):
            await pool.close()
        pool.terminate()
