"""Files of this machine, for the host. Done here, so that every link and every `..` resolves inside the machine.

Names are bytes: on the wire they are text with lone surrogates (`os.fsdecode`). A path is absolute, or relative to the
workspace. Each operation is done as a user of the machine, with that user's rights. A file that is written appears
whole or not at all: it grows beside its place and is renamed.
"""

import heapq
import json
import os
import stat
from collections.abc import Callable, Iterator

from outlive.guest import words as read
from outlive.guest.file_streams import FileReader, FileWriter
from outlive.guest.link import Ask
from outlive.guest.loop import Job, Loop
from outlive.guest.refusal import RefusalError, refusal_of
from outlive.guest.users import AGENT, User, Users, acting_as
from outlive.guest.wire import PAYLOAD_LIMIT, Words

_PAGE = 1000
_PAGE_BYTES = PAYLOAD_LIMIT - 4096
_AT_ONCE = 200  # entries handled before others get a turn
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))


class Files:
    def __init__(self, loop: Loop, users: Users, workspace: str) -> None:
        self._loop = loop
        self._users = users
        self._workspace = os.fsencode(workspace)

    def verbs(self) -> dict[str, Callable[[Ask], None]]:
        return {
            "file_stat": self._stat,
            "file_list": self._list,
            "file_read": self._read,
            "file_write": self._write,
            "file_delete": self._delete,
            "file_mkdir": self._mkdir,
            "file_move": self._move,
        }

    def _path(self, words: Words, name: str = "path") -> bytes:
        return os.path.join(self._workspace, os.fsencode(read.text(words, name)))

    def _user(self, words: Words) -> User:
        return self._users.find(read.text(words, "user", AGENT))

    def _stat(self, ask: Ask) -> None:
        path = self._path(ask.words)
        with acting_as(self._user(ask.words)):
            found = describe(path, os.path.basename(path), os.stat(path) if read.flag(ask.words, "follow") else None)
        ask.answer(found)

    def _list(self, ask: Ask) -> None:
        path, user = self._path(ask.words), self._user(ask.words)
        after = os.fsencode(read.text(ask.words, "after", ""))
        limit = min(read.whole(ask.words, "limit", _PAGE), _PAGE)
        self._work(ask, _list(ask, path, user, after, limit))

    def _work(self, ask: Ask, job: Iterator[None]) -> None:
        self._loop.add_job(_refusing(ask, job))

    def _read(self, ask: Ask) -> None:
        path, offset, limit = self._path(ask.words), read.whole(ask.words, "offset", 0), ask.words.get("limit")
        with acting_as(self._user(ask.words)):
            # Neither a pipe without a writer nor a terminal may hold the guest up.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise RefusalError("conflict", "not_a_file", f"{os.fsdecode(path)!r} is not a regular file.")
            ask.answer(_facts(os.path.basename(path), found))
        except RefusalError:
            os.close(descriptor)
            raise
        size = None if limit is None else read.whole(ask.words, "limit")
        FileReader(self._loop, ask.streams["content"], descriptor, offset, size)

    def _write(self, ask: Ask) -> None:
        mode = read.maybe_whole(ask.words, "mode")
        user, path = self._user(ask.words), self._path(ask.words)
        with acting_as(user):
            path = os.path.realpath(path)
            if read.flag(ask.words, "parents"):
                _make_parents(os.path.dirname(path))
        FileWriter(ask, path, user, mode)

    def _delete(self, ask: Ask) -> None:
        path, user = self._path(ask.words), self._user(ask.words)
        with acting_as(user):
            try:
                is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
            except FileNotFoundError:
                if read.flag(ask.words, "missing_ok"):
                    ask.answer({})
                    return
                raise
            if not is_directory:
                os.unlink(path)
                ask.answer({})
                return
        if not read.flag(ask.words, "recursive"):
            raise RefusalError("conflict", "is_a_directory", f"{os.fsdecode(path)!r} is a directory.")
        self._work(ask, _delete_tree(ask, path, user))

    def _mkdir(self, ask: Ask) -> None:
        path, mode = self._path(ask.words), read.whole(ask.words, "mode", 0o755) & 0o7777
        with acting_as(self._user(ask.words)):
            if read.flag(ask.words, "parents"):
                os.makedirs(path, mode, exist_ok=True)
            else:
                os.mkdir(path, mode)
        ask.answer({})

    def _move(self, ask: Ask) -> None:
        source, target = self._path(ask.words), self._path(ask.words, "to")
        with acting_as(self._user(ask.words)):
            if not read.flag(ask.words, "replace") and os.path.lexists(target):
                raise RefusalError("conflict", "file_exists", f"{os.fsdecode(target)!r} is there already.")
            os.rename(source, target)
        ask.answer({})


def _make_parents(path: bytes) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        message = f"{os.fsdecode(path)!r} is no directory, or something above it is none."
        raise RefusalError("conflict", "not_a_directory", message) from error


def _refusing(ask: Ask, job: Iterator[None]) -> Job:
    try:
        yield from job
    except OSError as error:
        ask.refuse(refusal_of(error))
    except RefusalError as refusal:
        ask.refuse(refusal)


def describe(path: bytes, name: bytes, found: os.stat_result | None = None) -> Words:
    found = found or os.lstat(path)
    target = os.fsdecode(os.readlink(path)) if stat.S_ISLNK(found.st_mode) else None
    return {**_facts(name, found), "target": target}


def _facts(name: bytes, found: os.stat_result) -> Words:
    kind = next((word for is_kind, word in _KINDS if is_kind(found.st_mode)), "other")
    return {
        "name": os.fsdecode(name),
        "kind": kind,
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime_ns": max(0, found.st_mtime_ns),
        "target": None,
    }


def _list(ask: Ask, path: bytes, user: User, after: bytes, limit: int) -> Iterator[None]:
    """The first `limit` names after `after`, in the order of their bytes; never more than that in memory."""
    with acting_as(user):
        try:
            entries = os.scandir(path)
        except NotADirectoryError:
            if not os.path.exists(path):  # it is something above it that is none
                raise
            raise RefusalError("conflict", "not_a_directory", f"{os.fsdecode(path)!r} is no directory.") from None
    names: list[bytes] = []
    with entries:
        for number, entry in enumerate(entries, 1):
            if entry.name > after:
                names.append(entry.name)
            if number % _AT_ONCE == 0:
                names = heapq.nsmallest(limit + 1, names)
                yield
                if not ask.is_open:
                    return
    names = heapq.nsmallest(limit + 1, names)
    with acting_as(user):
        rows, looked_at = _describe_all(path, names[:limit])
    last = os.fsdecode(names[looked_at - 1]) if looked_at else None
    ask.answer({"entries": rows, "last": last, "is_last": looked_at == len(names)})


def _describe_all(path: bytes, names: list[bytes]) -> tuple[list[Words], int]:
    """As many as fit an answer, and how many names that took: some may be gone by now."""
    rows: list[Words] = []
    size = 0
    for number, name in enumerate(names):
        try:
            row = describe(os.path.join(path, name), name)
        except FileNotFoundError:
            continue
        size += len(json.dumps(row)) + 1
        if size > _PAGE_BYTES:
            return rows, number
        rows.append(row)
    return rows, len(names)


def _delete_tree(ask: Ask, top: bytes, user: User) -> Iterator[None]:
    """Depth first, in slices: what was there at the look is gone before the directory is looked at again."""
    stack = [top]
    while stack and ask.is_open:
        with acting_as(user):
            _clear(stack)
        yield
    ask.answer({})


def _clear(stack: list[bytes]) -> None:
    directory = stack[-1]
    handled = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            handled += 1
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
                return
            os.unlink(entry.path)
            if handled >= _AT_ONCE:
                return
    os.rmdir(directory)
    stack.pop()
