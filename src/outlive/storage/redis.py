"""Redis: one plain connection that sends commands in pipelines. The vendor's exceptions end here.

Nothing is tried again in here: only the caller knows whether a command may be sent twice. After any failure the
connection is of no more use.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from outlive.base import InvalidError, UnavailableError

CONNECT_DEADLINE_S = 2.0

Command = Sequence[bytes | str | int]


class Refused(NamedTuple):
    """The reply to a command that Redis took and would not do. `word` is how its error begins (`OOM`, `WRONGTYPE`)."""

    word: str


class RedisServer:
    """Where a Redis is. Makes no connection by itself."""

    def __init__(self, url: str) -> None:
        try:
            self._pool: ConnectionPool = ConnectionPool.from_url(
                url, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0)
            )
        except ValueError as error:
            raise InvalidError("redis.url", "The address of Redis has to be redis://, rediss:// or unix://.") from error

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["RedisConnection"]:
        """A connection of one's own; `unavailable` if there is none to be had."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            try:
                with anyio.fail_after(CONNECT_DEADLINE_S):
                    await connection.connect()  # type: ignore[no-untyped-call]
            except (RedisError, OSError) as error:  # TimeoutError is an OSError
                raise _unavailable(error) from error
            yield RedisConnection(connection)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)


class RedisConnection:
    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def call(self, commands: Sequence[Command], deadline_s: float) -> list[Any]:
        """Send all commands in one go and return their replies, in order: what Redis gives, or `Refused`.

        `unavailable` if not all of them were answered; nobody knows then which were done.
        """
        try:
            with anyio.fail_after(deadline_s):
                await self._connection.send_packed_command(self._connection.pack_commands(commands))
                return [await self._reply() for _ in commands]
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return Refused(str(error).partition(" ")[0])


def _unavailable(error: Exception) -> UnavailableError:
    # The class alone: an address may hold a password.
    return UnavailableError("redis.unavailable", f"Redis does not answer as it should ({type(error).__name__}).")
