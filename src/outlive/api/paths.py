"""Paths in a machine, as the API's addresses name them. Pure.

    /v1/machines/{id}/files/etc/hosts      stands for /etc/hosts  (`files//etc/hosts` and `files/%2Fetc%2Fhosts` too)
    /v1/machines/{id}/files/src/main.py    stands for /workspace/src/main.py

Rule 1: a name may hold anything that a file's name may: newlines, percent signs, spaces. It is decoded once.
Rule 2: refused: `..` (what it means depends on symlinks), NUL, what is not UTF-8, what is longer than Linux takes.
Rule 3: empty parts and `.` mean nothing and are left out. A slash at the end names a directory: no file is read or
        written under such a name.
Rule 4: without a slash in front it is taken from the root if it begins with one of the folders that are at the root of
        every machine, else from the workspace, as a command there would take it.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor

from outlive.base import ExhaustedError, InvalidError

PATH_LIMIT = 4_095  # bytes, as Linux has it
NAME_LIMIT = 255
ROOT_FOLDERS = frozenset(
    "bin boot dev etc home lib lib32 lib64 media mnt opt proc root run sbin srv sys tmp usr var workspace".split()
)
WORKSPACE = "workspace"
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


class InMachine(NamedTuple):
    path: str  # absolute
    names_directory: bool  # it ended with a slash


class _Anything(Convertor[str]):
    """The rest of an address, line breaks included: Starlette's own `path` ends at one."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", _Anything())


def path_in_machine(raw_path: bytes, marker: bytes) -> InMachine:
    """The path behind the first `marker` (`/files/`) of an address, as it came over the wire."""
    _, found, rest = raw_path.partition(marker)
    try:
        text = unquote_to_bytes(rest).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidError("file.path", "The path is not UTF-8.") from None
    if not found:
        raise InvalidError("file.path", "The address names no path.")
    if "\0" in text:
        raise InvalidError("file.path", "A path holds no NUL.")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidError("file.path", "A path holds no `..`: say where the file is.")
    if parts and not text.startswith("/") and parts[0] not in ROOT_FOLDERS:
        parts = [WORKSPACE, *parts]
    path = "/" + "/".join(parts)
    if len(path.encode()) > PATH_LIMIT or any(len(part.encode()) > NAME_LIMIT for part in parts):
        raise InvalidError("file.path", f"A path has at most {PATH_LIMIT} bytes, and each name {NAME_LIMIT}.")
    return InMachine(path, not parts or text.endswith(("/", "/.")))


class ByteRange(NamedTuple):
    start: int
    size: int


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """What a `Range` header asks of a file of this size; None: all of it (also for what we do not do: several ranges
    in one, other units). Raises `file.range` if there is nothing there."""
    found = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        start = max(0, size - int(last))
        end = size if int(last) else start
    else:
        start = int(first)
        end = min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None  # HTTP says of such a range: as if it were not there
    if start >= size or end <= start:
        raise ExhaustedError("file.range", f"The file has {size} bytes.", size=size)
    return ByteRange(start, end - start)


def parse_port(text: str) -> int:
    """A port in plain decimal: no sign, no zeros in front, no digits of other scripts. One spelling for each port, so
    that no two parts of the house can read it differently."""
    if re.fullmatch(r"[1-9][0-9]{0,4}", text, re.ASCII) and int(text) <= 65_535:
        return int(text)
    raise InvalidError("port.malformed", "A port is a plain number from 1 to 65535.")
