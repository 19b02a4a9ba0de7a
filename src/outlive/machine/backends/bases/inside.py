"""What is done to the tree of a base, from inside of it. Runs as a process of its own; standard library only.

    inside.py unpack TREE BYTES ENTRIES [whiteouts]     a tar on stdin becomes part of the tree
    inside.py settle TREE                               the tree becomes one that a machine can start from

Rule 1: before a byte of the archive is looked at, the process has changed its root to the tree. Whatever paths and
        links an archive has, they lead to somewhere in the tree: there is nothing else.
Rule 2: afterwards it imports nothing: the archive may have brought modules along.
Rule 3: sizes that an archive declares are its own word; what counts is what is written.
Rule 4: no devices, no sockets, no setuid or setgid programs, no extended attributes. What is left out is counted.

The one line on stdout is JSON: what was done, or `{"error": ...}` with exit code 1.
"""

import contextlib
import errno
import json
import os
import posixpath
import resource
import shutil
import stat
import sys
import tarfile
from typing import BinaryIO

AGENT_ID = 1000
AGENT_HOME = posixpath.join("/home", "agent")
WORKSPACE = "/workspace"
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"

_MEMORY_BYTES = 1 << 30  # headers of an archive are read whole; this is what they may take
_LONGEST_PATH, _DEEPEST = 3_500, 200
_LARGEST_ID = 2**31 - 1
_LATEST = 2**33
_COPY_BYTES = 1 << 20
_SMALL_FILE = 1 << 20
# Mounted over in a machine, so that nothing in them is ever seen.
_EMPTIED = ("/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp")  # noqa: S108
_IDENTITY = (
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/var/lib/systemd/random-seed",
)
_HOSTS = "127.0.0.1\tlocalhost machine\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class _RefusedError(Exception):
    """The archive cannot be taken."""


class Unpacking:
    """One layer on its way into the tree."""

    def __init__(self, max_bytes: int, max_entries: int, has_whiteouts: bool) -> None:
        self._bytes_left = max_bytes
        self._entries_left = max_entries
        self._has_whiteouts = has_whiteouts
        self._own: set[str] = set()  # what this layer brought: an opaque folder hides only what is older
        self._parents: dict[str, str] = {}
        self.left_out: dict[str, int] = {}
        self.entries = 0
        self.bytes = 0

    def run(self, archive: BinaryIO) -> None:
        with tarfile.open(fileobj=archive, mode="r|", errorlevel=1) as members:
            for member in members:
                self._take(member, members)
                members.members = []  # type: ignore[attr-defined]  # a stream never looks back; do not keep them all
        while archive.read(_COPY_BYTES):  # the sender hashes all of it
            pass

    def _take(self, member: tarfile.TarInfo, members: tarfile.TarFile) -> None:
        self.entries += 1
        self._entries_left -= 1
        if self._entries_left < 0:
            raise _RefusedError("it has too many entries")
        path = posixpath.normpath("/" + member.name.lstrip("/"))
        if path == "/":
            return
        path = self._in_place(path)
        name = posixpath.basename(path)
        if self._has_whiteouts and name.startswith(WHITEOUT):
            self._hide(path, name)
            return
        if not (member.isdir() or member.isreg() or member.issym() or member.islnk() or member.isfifo()):
            self._leave_out("device" if member.isdev() else "unknown")
            return
        self._make(path, member, members)
        self._own.add(path)

    def _in_place(self, path: str) -> str:
        """The path with its folder made and every link in it followed, within the tree."""
        parent, name = posixpath.split(path)
        real = self._parents.get(parent)
        if real is None:
            real = self._parents[parent] = posixpath.realpath(parent)
            os.makedirs(real, mode=0o755, exist_ok=True)  # a link may lead to what is still to come
        result = posixpath.join(real, name)
        if len(os.fsencode(result)) > _LONGEST_PATH or result.count("/") > _DEEPEST:
            raise _RefusedError("it has folders that are too deep")
        return result

    def _hide(self, path: str, name: str) -> None:
        folder = posixpath.dirname(path)
        if name == OPAQUE:
            for entry in os.listdir(folder):
                self._hide_older(posixpath.join(folder, entry))
        elif not name.startswith(WHITEOUT + WHITEOUT):  # the others are notes that AUFS left for itself
            hidden = name.removeprefix(WHITEOUT)
            if hidden in ("", ".", ".."):
                raise _RefusedError("it hides a folder that is not in it")
            self._remove(posixpath.join(folder, hidden))

    def _hide_older(self, path: str) -> None:
        """Remove what older layers brought, also below folders that this layer has entered."""
        is_ours = any(own == path or own.startswith(path + "/") for own in self._own)
        if not is_ours:
            self._remove(path)
        elif stat.S_ISDIR(os.lstat(path).st_mode):
            for entry in os.listdir(path):
                self._hide_older(posixpath.join(path, entry))

    def _remove(self, path: str) -> None:
        remove(path)
        self._parents.clear()

    def _make(self, path: str, member: tarfile.TarInfo, members: tarfile.TarFile) -> None:
        with contextlib.suppress(FileNotFoundError):
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
            if not (is_folder and member.isdir()):
                self._remove(path)
        if member.islnk():
            target = self._in_place(posixpath.normpath("/" + member.linkname.lstrip("/")))
            os.link(target, path, follow_symlinks=False)
            return
        if member.isdir():
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
        elif member.issym():
            os.symlink(member.linkname, path)
            self._parents.clear()
        elif member.isfifo():
            os.mkfifo(path)
        else:
            self._write(path, member, members)
        self._own_and_date(path, member)

    def _write(self, path: str, member: tarfile.TarInfo, members: tarfile.TarFile) -> None:
        content = members.extractfile(member)
        if content is None:
            raise _RefusedError(f"{member.name!r} has no content")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            while chunk := content.read(_COPY_BYTES):
                self._bytes_left -= len(chunk)
                if self._bytes_left < 0:
                    raise _RefusedError("it unpacks to more than is allowed")
                self.bytes += file.write(chunk) or 0

    def _own_and_date(self, path: str, member: tarfile.TarInfo) -> None:
        if not (0 <= member.uid <= _LARGEST_ID and 0 <= member.gid <= _LARGEST_ID):
            raise _RefusedError(f"{member.name!r} has an owner that no system has")
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
        if member.issym():
            return
        kept = 0o3777 if member.isdir() else 0o777
        if not member.isdir() and member.mode & 0o6000:
            self._leave_out("setuid bit")
        os.chmod(path, member.mode & kept)
        if member.isreg():  # compiled Python knows its source by its time
            moment = min(max(member.mtime, 0), _LATEST)
            os.utime(path, (moment, moment), follow_symlinks=False)

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def remove(path: str) -> None:
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def settle() -> None:
    """The tree becomes one that a machine can start from: its user, its places, and nothing that names a host."""
    for path in _EMPTIED:
        folder(path)
        for name in os.listdir(path):
            remove(posixpath.join(path, name))
    for path in _IDENTITY:
        remove(path)
    folder("/etc")
    if posixpath.isdir("/etc/ssh"):
        for name in os.listdir("/etc/ssh"):
            if name.startswith("ssh_host_"):
                remove(posixpath.join("/etc/ssh", name))
    write("/etc/hosts", _HOSTS)
    write("/etc/hostname", "machine\n")
    write("/etc/resolv.conf", "")
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    enter("/etc/passwd", f"agent:x:{AGENT_ID}:{AGENT_ID}:agent:{AGENT_HOME}:{shell}", "root:x:0:0:root:/root:/bin/sh")
    enter("/etc/group", f"agent:x:{AGENT_ID}:", "root:x:0:")
    for path, mode, owner in (
        ("/", 0o755, 0),
        ("/.outlive", 0o755, 0),
        (AGENT_HOME, 0o755, AGENT_ID),
        (WORKSPACE, 0o755, AGENT_ID),
        ("/tmp", 0o1777, 0),  # noqa: S108
        ("/var/tmp", 0o1777, 0),  # noqa: S108
    ):
        folder(path)
        os.chown(path, owner, owner)
        os.chmod(path, mode)


def folder(path: str) -> None:
    """`path` is a folder afterwards, whatever the archive had there."""
    if not posixpath.isdir(path):
        remove(path)
    os.makedirs(path, mode=0o755, exist_ok=True)


def write(path: str, text: str) -> None:
    remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o644)


def enter(path: str, agent: str, root: str) -> None:
    """Put the agent into a file of users or groups, before anybody else who has its number."""
    lines = [line for line in small_text(path).splitlines() if not line.startswith("agent:")]
    if not any(line.startswith("root:") for line in lines):
        lines.insert(0, root)
    numbers = [line.split(":")[2] if line.count(":") >= 2 else "" for line in lines]
    place = numbers.index(str(AGENT_ID)) if str(AGENT_ID) in numbers else len(lines)
    lines.insert(place, agent)
    write(path, "\n".join(lines) + "\n")


def small_text(path: str) -> str:
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return ""
    if not is_file:
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_SMALL_FILE)


def go_inside(tree: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)
    for encoding in ("utf-8", "ascii", "iso8859-1", "idna"):  # what tarfile may ask for later
        "".encode(encoding)
    os.chroot(tree)
    os.chdir("/")
    sys.path.clear()
    sys.meta_path.clear()


def main(arguments: list[str]) -> int:
    verb, tree, *rest = arguments
    go_inside(tree)
    try:
        if verb == "settle":
            settle()
            done: dict[str, object] = {}
        else:
            unpacking = Unpacking(int(rest[0]), int(rest[1]), "whiteouts" in rest)
            unpacking.run(sys.stdin.buffer)
            done = {"entries": unpacking.entries, "bytes": unpacking.bytes, "left_out": unpacking.left_out}
    except (_RefusedError, tarfile.TarError, ValueError, RecursionError) as error:
        done = {"error": str(error)}
    except MemoryError:
        done = {"error": "its headers are too large"}
    except OSError as error:
        done = {"error": error.strerror, "is_full": error.errno in (errno.ENOSPC, errno.EDQUOT)}
    sys.stdout.write(json.dumps(done) + "\n")
    return 1 if "error" in done else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
