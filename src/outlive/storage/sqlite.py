"""One SQLite file, shared by several processes: its threads, its transactions, and what its errors mean here.

Rule 1: every connection belongs to one thread for its whole life. One thread writes, a few read; the event loop never
        waits for the disk.
Rule 2: a write that was handed in runs to its end, whatever becomes of its caller: a cancelled caller leaves either the
        whole transaction or none of it.
Rule 3: no cursor leaves its thread alive. Let go by another thread, it resets its statement while this one may be
        running that very statement for the next call (`SQLITE_MISUSE`).
Rule 4: a write has been synced to the disk when `write` returns (WAL, synchronous=FULL).

Why not the generic executor: threads with a connection each need no hand-over of connections, and the hop there and
back, which is a third of a small write, is a fifth shorter.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import anyio

from outlive.base import BrokenError, DeadlineError, ExhaustedError, InvalidError, OutliveError, UnavailableError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Done = Callable[[T | None, BaseException | None], None]

WAITING_LIMIT = 4_096  # calls that wait for a thread; one more is refused (`storage.busy`)
DEADLINE_S = 30.0  # from handing in to the answer
JOURNAL_LIMIT = 64 * 1024 * 1024  # bytes that the WAL keeps after a checkpoint


def to_outlive_error(error: sqlite3.Error | UnicodeEncodeError) -> OutliveError:
    """What an error of SQLite means to those who do not know SQLite."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidError("storage.value", f"The database cannot take this value ({error.reason}).")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return UnavailableError("storage.locked", "The database is locked by another process; try again.")
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_TOOBIG:
            return ExhaustedError("storage.full", f"The database cannot take more ({error}); make room on its disk.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return BrokenError("storage.damaged", f"The database is damaged ({error}); restore it from a copy.")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return UnavailableError("storage.unreachable", f"The database cannot be read or written ({error}).")
        case _:
            return BrokenError("storage.refused", f"The database refused a statement ({error}).")


class _Answer:
    """Catches whatever a piece of work ends with, so that it reaches the caller and not the thread."""

    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> "_Answer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if isinstance(error, sqlite3.Error | UnicodeEncodeError):
            self.error = to_outlive_error(error)
            self.error.__cause__ = error
        else:
            self.error = error
        return True


class _Lane:
    """A queue, and threads with a connection each that work it off."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection], threads: int, name: str) -> None:
        self._open_connection = open_connection
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Work[Any], Done[Any]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        self._waiting = 0
        self._is_closed = False

    async def __aenter__(self) -> "_Lane":
        for thread in self._threads:
            thread.start()
        try:
            for _ in self._threads:
                await self.run(lambda connection: None)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self, work: Work[T], done: Done[T]) -> None:
        """Hand in `work`; `done` is called on the event loop, once, when it is over."""
        if self._is_closed:
            raise UnavailableError("storage.closed", "The database was closed.")
        if self._waiting >= WAITING_LIMIT:
            raise ExhaustedError("storage.busy", f"{self._waiting} calls wait for the database; try again later.")
        self._waiting += 1
        self._queue.put((work, done))

    async def run(self, work: Work[T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self.start(work, partial(_settle, future))
        # A timer on the future costs a fraction of a cancel scope.
        timer = self._loop.call_later(DEADLINE_S, _settle, future, None, _slow())
        try:
            return await future
        finally:
            timer.cancel()

    async def aclose(self) -> None:
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            for thread in self._threads:
                await anyio.to_thread.run_sync(thread.join, DEADLINE_S)

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        while (item := self._queue.get()) is not None:
            work, done = item
            with _Answer() as answer:
                if connection is None:  # the first time, or it could not be opened before
                    connection = self._open_connection()
                answer.value = work(connection)
                _end_cursor(answer.value)
            del work, item  # what the caller's closure holds must not live until the next one comes
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._give, answer, done)
        if connection is not None:
            connection.close()

    def _give(self, answer: _Answer, done: Done[Any]) -> None:
        self._waiting -= 1
        done(answer.value, answer.error)


def _settle(future: "asyncio.Future[T]", value: T | None, error: BaseException | None) -> None:
    if future.done():  # the caller went away
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)  # type: ignore[arg-type]  # without an error there is a T


def _slow() -> DeadlineError:
    return DeadlineError("storage.slow", f"The database did not answer within {DEADLINE_S} s.")


class SqliteDatabase:
    """Transactions on one file. `work` runs in a thread, gets that thread's connection and must not keep it."""

    def __init__(self, path: Path, writer: _Lane, readers: _Lane) -> None:
        self.path = path
        self._writer = writer
        self._readers = readers

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction of its own; durable when this returns. Not undone by a cancelled caller."""
        return await self._writer.run(partial(_transact, work))

    def start_write(self, work: Work[T], done: Done[T]) -> None:
        """The same for who would rather be called back, on the event loop: with the result, or with the error."""
        self._writer.start(partial(_transact, work), done)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a connection that cannot write. Each statement sees the newest committed state."""
        return await self._readers.run(work)


def _end_cursor(result: object) -> None:
    if isinstance(result, sqlite3.Cursor):
        result.close()


def _transact(work: Work[T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        _end_cursor(result)
        connection.execute("COMMIT")
        return result
    finally:
        if connection.in_transaction:  # something above failed
            connection.execute("ROLLBACK")


def _connect(path: Path, busy_timeout_s: float, *, is_writer: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=True)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA cache_size=-16384")
    if is_writer:
        connection.execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT}")
    else:
        connection.execute("PRAGMA query_only=ON")
    return connection


def _enter_wal(path: Path, busy_timeout_s: float) -> None:
    """Make the file a WAL database, once for all. Two processes that both find a new file may be told `locked` at once,
    whatever the busy timeout: so this asks again."""
    for attempts_left in reversed(range(100)):
        try:
            with closing(sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)) as connection:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_locked or not attempts_left:
                raise
            threading.Event().wait(busy_timeout_s / 100)
            continue
        if mode != "wal":
            raise BrokenError("storage.no_wal", f"{str(path)!r} is on a file system that cannot hold a WAL database.")
        return


@asynccontextmanager
async def open_sqlite(path: Path, *, readers: int = 4, busy_timeout_s: float = 5.0) -> AsyncIterator[SqliteDatabase]:
    """The database in the file `path`, made if there is none. Its threads and connections end with the context."""

    def connect_writer() -> sqlite3.Connection:
        _enter_wal(path, busy_timeout_s)
        return _connect(path, busy_timeout_s, is_writer=True)

    def connect_reader() -> sqlite3.Connection:
        return _connect(path, busy_timeout_s, is_writer=False)

    async with (
        _Lane(connect_writer, 1, f"{path.name}-writer") as writer,
        _Lane(connect_reader, readers, f"{path.name}-reader") as reading,
    ):
        yield SqliteDatabase(path, writer, reading)
