"""Bytes under keys, on local disk or in S3. Knows nothing of what they mean.

Rule 1: an object is whole or absent. No crash, not even a power cut, leaves a half object under its key.
Rule 2: what was put is durable when `put_new` or `replace` returns. For S3 that is the server's word; on local disk it
        is ours: the file is flushed before it gets its name, and then the directory that holds the name.
Rule 3: `put_new` creates and never overwrites, whoever else writes the same key at the same time.
Rule 4: a key is a plain relative path of safe characters, so none can leave the root or be mistaken for another.

Local disk is laid out as obstore has it (the key is the path), and obstore reads, lists and deletes there. It cannot
write there: it names a file before its content is flushed. Files that were being written when the process died stay as
`<key>#<digits>`; no call shows them, and `discard_unfinished` removes them.
"""

import errno
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError
from obstore.exceptions import UnauthenticatedError as VendorUnauthenticatedError
from obstore.store import LocalStore, S3Store

from outlive.base import (
    BrokenError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnavailableError,
)

if TYPE_CHECKING:  # these names are for type checkers only
    from obstore.store import ClientConfig, RetryConfig, S3Config

CALL_DEADLINE_S = 30.0  # for each call, its retries included
LOCAL_WRITES = 8  # at the same time; the others wait, within their deadline
LIST_CHUNK = 1_000

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # no leading dot: neither `..` nor hidden files
_KEY_LIMIT = 900  # S3 takes 1,024 bytes, its prefix included
_STAGED = re.compile(r"#[0-9]+$")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_CLIENT: "ClientConfig" = {"timeout": timedelta(seconds=25), "connect_timeout": timedelta(seconds=5)}
_RETRY: "RetryConfig" = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


T = TypeVar("T")


class Stored(NamedTuple):
    """What a listing says of an object."""

    key: str
    size: int


class ObjectStore:
    """One folder or bucket. Holds no connection that would have to be closed. Get one with `open_objects`."""

    def __init__(self, store: LocalStore | S3Store, where: str, local: "LocalWriter | None") -> None:
        self._store = store
        self._where = where
        self._local = local

    async def put_new(self, key: str, content: bytes) -> bool:
        """Store `content` under `key`. True if this call wrote it, False if there was an object of that key: then
        nothing is changed. (A lost answer of a write that worked is tried again and also gives False.)"""
        _check_key(key)
        with self._calling(key):
            if self._local is not None:
                return await self._local.write(key, content, overwrite=False)
            try:
                await self._store.put_async(key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    async def replace(self, key: str, content: bytes) -> None:
        """Store `content` under `key`, at once in place of what was there. Readers see the old or the new."""
        _check_key(key)
        with self._calling(key):
            if self._local is not None:
                await self._local.write(key, content, overwrite=True)
            else:
                await self._store.put_async(key, content, mode="overwrite", use_multipart=False)

    async def get(self, key: str) -> bytes:
        _check_key(key)
        with self._calling(key):
            found = await self._store.get_async(key)
            return bytes(await found.bytes_async())

    async def size(self, key: str) -> int:
        _check_key(key)
        with self._calling(key):
            return (await self._store.head_async(key))["size"]

    async def exists(self, key: str) -> bool:
        try:
            await self.size(key)
        except NotFoundError:
            return False
        return True

    async def list(self, prefix: str = "") -> AsyncIterator[Stored]:
        """Every object below the folder `prefix` (whole segments: `blobs/a` does not find `blobs/ab`), in no order."""
        if prefix:
            _check_key(prefix)
        chunks = self._store.list(prefix or None, chunk_size=LIST_CHUNK)
        while True:
            with self._calling(prefix):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            for found in chunk:
                yield Stored(found["path"], found["size"])

    async def delete(self, key: str) -> None:
        """Delete it, if it is there."""
        _check_key(key)
        with self._calling(key), suppress(FileNotFoundError):
            await self._store.delete_async(key)
            if self._local is not None:
                await self._local.flush_directory(key)

    async def discard_unfinished(self, prefix: str, before: datetime) -> int:
        """Remove what writers left that died below the folder `prefix`, last written to `before` then: give a moment
        that no write still going on has begun before. S3 has none. Returns how many."""
        _check_key(prefix)
        if self._local is None:
            return 0
        with self._calling(prefix):
            return await self._local.discard_unfinished(prefix, before.timestamp())

    async def check(self) -> None:
        """Raise what is wrong with the place itself: no such bucket, bad credentials, nobody there."""
        with self._calling(""):
            await anext(self._store.list(chunk_size=1), None)

    @contextmanager
    def _calling(self, key: str) -> Iterator[None]:
        """A deadline around one call, and its errors in our words."""
        try:
            with anyio.fail_after(CALL_DEADLINE_S):
                yield
        except TimeoutError as error:
            raise DeadlineError(
                "objects.deadline", f"The object store {self._where!r} did not answer in {CALL_DEADLINE_S:g} s."
            ) from error
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            raise explain(error, self._where, key) from error


class LocalWriter:
    """Durable writes below a local folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._limiter = anyio.CapacityLimiter(LOCAL_WRITES)
        # Folders whose names are known to be on disk. Folders are never removed, and their number is that of the
        # key space's fan-out.
        self._flushed = {root}

    async def write(self, key: str, content: bytes, *, overwrite: bool) -> bool:
        return await self._in_thread(lambda: self._write(self._root / key, content, overwrite))

    async def flush_directory(self, key: str) -> None:
        await self._in_thread(lambda: _flush_directory((self._root / key).parent))

    async def discard_unfinished(self, prefix: str, before: float) -> int:
        def discard() -> int:
            found = [path for path in (self._root / prefix).rglob("*#*") if _STAGED.search(path.name)]
            old = [path for path in found if _written_at(path) < before]
            for path in old:
                path.unlink(missing_ok=True)
            return len(old)

        return await self._in_thread(discard)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # Abandoned at the deadline: a disk that hangs must not hang the caller. What it still does is harmless.
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        except FileNotFoundError as error:
            raise UnavailableError("objects.unavailable", f"The folder {str(self._root)!r} is gone.") from error

    def _write(self, path: Path, content: bytes, overwrite: bool) -> bool:
        self._ensure_directory(path.parent)
        is_new = False
        if overwrite or not path.exists():
            staged = Path(f"{path}#{secrets.randbits(62)}")  # a name that obstore does not list
            try:
                _write_flushed(staged, content)
                is_new = _name(staged, path, overwrite)
            finally:
                staged.unlink(missing_ok=True)
        # Also when it was there: whoever named it may not have come to this line yet.
        _flush_directory(path.parent)
        return is_new

    def _ensure_directory(self, directory: Path) -> None:
        if directory in self._flushed:
            return
        self._ensure_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _flush_directory(directory.parent)
        self._flushed.add(directory)


def _written_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # its writer has just finished
        return float("inf")


def _write_flushed(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _name(staged: Path, path: Path, overwrite: bool) -> bool:
    if overwrite:
        staged.replace(path)
        return True
    try:
        path.hardlink_to(staged)  # refuses, at once and in one step, when the name is taken
    except FileExistsError:
        return False
    return True


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_root(directory: Path) -> None:
    if not directory.is_dir():
        _make_root(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _flush_directory(directory.parent)


def open_objects(
    url: str | Path,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
) -> ObjectStore:
    """The store at `url`: a path or `file:///path` (made if it is absent), or `s3://bucket/prefix` (which must exist:
    ask `check`, for nothing is sent from here).

    For S3, what is not given is taken from where the AWS tools would (environment, instance role).
    """
    parts = urlsplit(str(url))
    if isinstance(url, Path) or not parts.scheme:
        return _open_local(Path(url))
    if parts.scheme == "file" and not parts.netloc and parts.path:
        return _open_local(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        config: S3Config = {"virtual_hosted_style_request": endpoint is None}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if region is not None:
            config["region"] = region
        if access_key_id is not None:
            config["access_key_id"] = access_key_id
        if secret_access_key is not None:
            config["secret_access_key"] = secret_access_key
        return _open_s3(parts.netloc, parts.path.strip("/"), config)
    raise InvalidError(
        "objects.url", f"{str(url)!r} is no object store: give a path, file:///path or s3://bucket/prefix."
    )


def _open_local(path: Path) -> ObjectStore:
    root = path.absolute()
    try:
        _make_root(root)
        return ObjectStore(LocalStore(root), str(root), LocalWriter(root))
    except (OSError, BaseError) as error:
        raise explain(error, str(root), "") from error


def _open_s3(bucket: str, prefix: str, config: "S3Config") -> ObjectStore:
    where = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
    client: ClientConfig = {**_CLIENT, "allow_http": config.get("endpoint", "").startswith("http://")}
    try:
        store = S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRY)
    except (BaseError, ValueError) as error:
        raise InvalidError("objects.settings", f"The settings for {where!r} cannot be used.") from error
    return ObjectStore(store, where, local=None)


def _check_key(key: str) -> None:
    if len(key) > _KEY_LIMIT or not all(_SEGMENT.fullmatch(segment) for segment in key.split("/")):
        raise InvalidError("objects.key", f"{key[:100]!r} cannot be the key of an object.")


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def explain(error: BaseError | OSError | ValueError | NotImplementedError, where: str, key: str) -> OutliveError:
    """What a failure of the vendor or of the disk means in our words. Its own text may hold key ids: not passed on."""
    if isinstance(error, OSError):
        return _explain_disk(error, where, key)
    denied = DeniedError("objects.denied", f"{where!r} does not let us in: check the credentials and their rights.")
    if isinstance(error, (PermissionDeniedError, VendorUnauthenticatedError)):
        return denied
    if not isinstance(error, BaseError):
        return BrokenError("objects.refused", f"{where!r} does not understand what we ask of it.")
    # Listing errors come without a class of their own; the status is only in the text.
    status = match[1] if (match := _STATUS.search(str(error))) else ""
    if status in ("401", "403"):
        return denied
    if status == "404":
        return NotFoundError("objects.bucket_not_found", f"There is no bucket for {where!r}: make it first.")
    if status in ("413", "507"):
        return _full(where)
    if status in ("400", "301"):
        return BrokenError("objects.refused", f"{where!r} does not understand what we ask of it: check the region.")
    return UnavailableError("objects.unavailable", f"The object store {where!r} cannot be reached.")


def _explain_disk(error: OSError, where: str, key: str) -> OutliveError:
    if isinstance(error, FileNotFoundError):
        if "NoSuchBucket" in str(error):
            return NotFoundError("objects.bucket_not_found", f"There is no bucket for {where!r}: make it first.")
        return NotFoundError("objects.not_found", f"There is no object {key!r} in {where!r}.")
    if error.errno in _FULL:
        return _full(where)
    if error.errno in _REFUSED:
        return DeniedError("objects.denied", f"{where!r} does not let us in: check the rights of the folder.")
    return UnavailableError("objects.unavailable", f"The object store {where!r} cannot be used: {error.strerror}.")


def _full(where: str) -> ExhaustedError:
    return ExhaustedError("objects.full", f"There is no room left in {where!r}.")
