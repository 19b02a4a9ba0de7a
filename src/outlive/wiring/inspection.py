"""Looking at the parts behind a stack without changing them: what `outlive doctor` asks.

Each function returns a sentence if all is well and raises one of our errors if not. Nothing is migrated, and what was
written to try is removed.
"""

import secrets
import socket
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import anyio.to_thread
from pydantic import SecretStr

from outlive.base import BrokenError, UnavailableError
from outlive.storage.migrate import Migrations
from outlive.wiring.build import migrations_of, open_object_store
from outlive.wiring.settings import Settings

_FULL_TEXT = "CREATE VIRTUAL TABLE words USING fts5(text)"
_RETURNING = "INSERT INTO words VALUES ('a') RETURNING *"
_TEMPORAL_WITHIN_S = 3.0
_SELECT = "SELECT name FROM migrations"


async def inspect_sqlite() -> str:
    """Whether the SQLite of this Python can do what we ask of it, full-text search included. Tried on a file of its
    own."""
    from outlive.storage.sqlite import open_sqlite

    with tempfile.TemporaryDirectory(prefix="outlive-doctor-") as folder:
        async with open_sqlite(Path(folder) / "try.db", readers=1) as database:
            [version] = await database.read(lambda connection: connection.execute("SELECT sqlite_version()").fetchone())
            await database.write(lambda connection: connection.execute(_FULL_TEXT).fetchall())
            await database.write(lambda connection: connection.execute(_RETURNING).fetchall())
    return f"SQLite {version} with full-text search"


async def inspect_database(settings: Settings) -> str:
    """Whether the database answers and has the tables of this version."""
    if settings.sqlite_path is None:
        applied, where = await _applied_postgres(settings), "PostgreSQL"
    elif await anyio.Path(settings.sqlite_path).exists():
        applied, where = await _applied_sqlite(settings), str(settings.sqlite_path)
    else:
        return f"{settings.sqlite_path} is not there yet: it is made at the first start"
    return f"{where}: {_compare(migrations_of(settings), applied)}"


async def _applied_sqlite(settings: Settings) -> set[str]:
    from outlive.storage.sqlite import open_sqlite

    assert settings.sqlite_path is not None
    async with open_sqlite(settings.sqlite_path, readers=1) as database:
        exists = "SELECT 1 FROM sqlite_master WHERE name = 'migrations'"
        if await database.read(lambda connection: connection.execute(exists).fetchone()) is None:
            return set()
        return {name for (name,) in await database.read(lambda connection: connection.execute(_SELECT).fetchall())}


async def _applied_postgres(settings: Settings) -> set[str]:
    from outlive.storage.postgres import open_postgres

    async with open_postgres(settings.database.url.get_secret_value(), pool_size=1) as database:
        exists = "SELECT to_regclass('migrations')"
        if await database.run(lambda connection: connection.fetchval(exists)) is None:
            return set()
        return {row["name"] for row in await database.run(lambda connection: connection.fetch(_SELECT))}


def _compare(wanted: tuple[Migrations, ...], applied: set[str]) -> str:
    known = {item.name for part in wanted for item in part.items}
    if unknown := sorted(applied - known):
        raise BrokenError(
            "migrate.newer", f"The database was used by a newer version ({unknown[0]!r}): upgrade Outlive."
        )
    pending = len(known - applied)
    return f"reachable, {pending} migrations are applied at the next start" if pending else "reachable, up to date"


async def inspect_feed(settings: Settings, *, is_running: bool) -> str:
    if not settings.has_local_feed:
        return await _ping_redis(settings)
    if not is_running:
        return "local: run by the API when that is started"
    await anyio.to_thread.run_sync(_connect_broker, settings)
    return "local: the broker answers"


def _connect_broker(settings: Settings) -> None:
    from outlive.conversation.backends.broker import short_address

    path = settings.feed_socket_path
    try:
        with socket.socket(socket.AF_UNIX) as client, short_address(path) as address:
            client.settimeout(2.0)
            client.connect(address)
    except OSError as error:
        raise UnavailableError(
            "feed.away",
            f"The broker at {str(path)!r} does not answer ({error.strerror}); events come late and live output is "
            "lost. Restart the stack.",
        ) from None


async def _ping_redis(settings: Settings) -> str:
    from outlive.storage.redis import RedisServer

    async with RedisServer(settings.feed.url.get_secret_value()).connect() as connection:
        await connection.call([["PING"]], 2.0)
    return "Redis answers"


async def inspect_temporal(settings: Settings, *, has_worker: bool) -> str:
    """Whether Temporal answers and, if there should be a worker, whether work goes through from end to end."""
    from outlive.wiring.ping import ping
    from outlive.wiring.temporal import connect_temporal

    client = await connect_temporal(settings, _TEMPORAL_WITHIN_S, is_quiet=True)
    where = client.service_client.config.target_host
    if not has_worker:
        return f"{where} answers"
    took_ms = await ping(client, _TEMPORAL_WITHIN_S)
    return f"{where} answers; a workflow and its activity took {took_ms:.0f} ms"


async def inspect_objects(settings: Settings) -> str:
    """Whether an object can be written, read and deleted."""
    objects = await open_object_store(settings)
    key, content = f"doctor/{secrets.token_hex(8)}", b"outlive doctor"
    await objects.put_new(key, content)
    try:
        if await objects.get(key) != content:
            raise BrokenError("objects.damaged", "The object store returned other bytes than were stored.")
    finally:
        await objects.delete(key)
    return f"{settings.objects_path or without_credentials(settings.objects.url)}: can be written and read"


def without_credentials(url: SecretStr) -> str:
    parts = urlsplit(url.get_secret_value())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
