"""Archives become trees. The host's side: decompress, count, verify; the archive itself is read by `inside.py`.

Rule 1: this process never resolves a path of an archive.
Rule 2: a stream is bounded before it is unpacked, whatever it says of itself, and the child has a deadline.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol, cast

import zstandard

from outlive.base import BrokenError, DeadlineError, ExhaustedError, InvalidError
from outlive.machine.backends.bases.tree_cache import Say

_INSIDE = Path(__file__).with_name("inside.py")
_READ_BYTES = 1 << 20
_WINDOW_BYTES = 1 << 27  # what a Zstandard frame may ask us to keep
_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh"
_LONGEST_MAGIC = 6


class Bounds(NamedTuple):
    bytes: int = 32 << 30  # of files, all layers together; also of one archive once it is decompressed
    entries: int = 4_000_000
    within_s: float = 3_600.0


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Hashing:
    """A stream that remembers what went through it."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._hasher = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._source.read(size)
        self._hasher.update(chunk)
        return chunk

    def drain(self) -> None:
        while self.read(_READ_BYTES):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._hasher.hexdigest()}"


class _Rewound(io.RawIOBase):
    """A stream whose first bytes were looked at."""

    def __init__(self, first: bytes, rest: Readable) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(cast("bytearray", buffer))
        chunk, self._first = (self._first or self._rest.read(len(view)))[: len(view)], self._first[len(view) :]
        view[: len(chunk)] = chunk
        return len(chunk)


def _first_bytes(source: Readable) -> bytes:
    first = b""
    while len(first) < _LONGEST_MAGIC and (chunk := source.read(_LONGEST_MAGIC - len(first))):
        first += chunk
    return first


def decompressed(source: Readable) -> Readable:
    """The content of a stream, known by its first bytes: gzip, Zstandard, xz, bzip2, or as it is."""
    first = _first_bytes(source)
    raw = io.BufferedReader(_Rewound(first, source), _READ_BYTES)
    if first.startswith(_GZIP):
        return cast("Readable", gzip.GzipFile(fileobj=raw))
    if first.startswith(_ZSTD):
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        return reader.stream_reader(raw, read_across_frames=True)
    if first.startswith(_XZ):
        return cast("Readable", lzma.LZMAFile(raw))
    if first.startswith(_BZIP2):
        return cast("Readable", bz2.BZ2File(raw))
    return raw


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return _first_bytes(file).startswith((_GZIP, _ZSTD, _XZ, _BZIP2))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """A damaged stream is its sender's fault, and said in one sentence."""
    try:
        yield
    except (EOFError, zstandard.ZstdError, lzma.LZMAError, gzip.BadGzipFile, ValueError) as error:
        raise InvalidError("base.bad_archive", f"{what} is damaged: {error}.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidError("base.bad_archive", f"{what} is damaged: {error}.") from None  # bzip2 has no better word


class Unpacked(NamedTuple):
    entries: int
    bytes: int


def unpack(
    tree: Path, content: Readable, what: str, say: Say, *, bounds: Bounds, has_whiteouts: bool = False
) -> Unpacked:
    """Put a tar (already decompressed) into the tree."""
    arguments = [str(bounds.bytes), str(bounds.entries), *(["whiteouts"] if has_whiteouts else [])]
    with _child("unpack", tree, *arguments, within_s=bounds.within_s, what=what) as child:
        assert child.stdin is not None
        is_cut = _pump(content, child.stdin, what, bounds)
        answer = _answer(child, what)
    if is_cut:
        raise BrokenError("base.unpacking", f"{what} was only read in part.")
    _say_left_out(cast("dict[str, int]", answer["left_out"]), what, say)
    return Unpacked(cast("int", answer["entries"]), cast("int", answer["bytes"]))


def settle(tree: Path) -> None:
    """Make the tree one that a machine can start from: the user `agent`, its places, nothing that names a host."""
    with _child("settle", tree, within_s=120.0, what="the tree") as child:
        _answer(child, "The tree")


@contextmanager
def _child(verb: str, tree: Path, *arguments: str, within_s: float, what: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The process inside the tree. It is gone afterwards, whatever happens."""
    argv = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_INSIDE), verb, str(tree), *arguments]
    with subprocess.Popen(  # noqa: S603
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, bufsize=0
    ) as child:
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(within_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield child
        except InvalidError:
            child.kill()
            if is_late.is_set():
                raise DeadlineError("base.slow", f"Unpacking {what} took more than {within_s:g} s.") from None
            raise
        except BaseException:
            child.kill()
            raise
        finally:
            timer.cancel()


def _pump(content: Readable, stdin: IO[bytes], what: str, bounds: Bounds) -> bool:
    """Hand the stream over. True if the child stopped reading before its end."""
    left = bounds.bytes + bounds.entries * 1_024
    with reading(what):
        while chunk := content.read(_READ_BYTES):
            left -= len(chunk)
            if left < 0:
                raise ExhaustedError("base.too_large", f"{what} unpacks to more than {bounds.bytes} bytes.")
            if not _write(stdin, chunk):
                return True
    stdin.close()
    return False


def _write(stdin: IO[bytes], chunk: bytes) -> bool:
    view = memoryview(chunk)
    try:
        while view:
            view = view[stdin.write(view) or 0 :]
    except BrokenPipeError:
        return False
    return True


def _answer(child: "subprocess.Popen[bytes]", what: str) -> dict[str, object]:
    assert child.stdout is not None
    if child.stdin is not None and not child.stdin.closed:
        child.stdin.close()
    line = child.stdout.readline(1 << 16)
    child.wait()
    try:
        answer = json.loads(line)
    except ValueError:
        raise InvalidError("base.bad_archive", f"{what} cannot be unpacked: the reader of it died.") from None
    if "error" not in answer:
        return cast("dict[str, object]", answer)
    if answer.get("is_full"):
        raise ExhaustedError("base.disk_full", f"There is no room on the disk to unpack {what}.")
    raise InvalidError("base.bad_archive", f"{what} cannot be unpacked: {answer['error']}.")


def _say_left_out(left_out: dict[str, int], what: str, say: Say) -> None:
    for name, number in sorted(left_out.items()):
        say(f"{what}: left out {number} {name}{'' if number == 1 else 's'}")
