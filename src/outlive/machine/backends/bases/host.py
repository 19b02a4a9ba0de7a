"""The base `host`: a skeleton of our own over this host's `/usr`. Nothing is downloaded and nothing big is copied.

The two are the lower layers of one overlay. `/usr` is the lower one, so that its folders lie at the root (`/bin`,
`/lib`, `/share`), and the skeleton has `usr -> .`: `/usr/bin` and `/bin` are one folder, as on any Debian of today.

Rule 1: nothing of `/root`, `/home`, `/var` and the environment gets in, and of `/etc` only what is copied here by name.
Rule 2: `/usr` is the host's and changes with its packages. The fingerprint says whether it is what it was.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from outlive.base import SystemClock, UnavailableError

VERSION = 2
USR = Path("/usr")
RECIPE_NAME = f"host {VERSION}"
# Of /etc: what programs in /usr look for and what holds no secret. Private keys stay where they are.
_COPIED = (
    *("alternatives", "bash.bashrc", "debian_version", "fonts", "inputrc", "java-11-openjdk", "java-17-openjdk"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "os-release", "profile"),
    *("protocols", "python3", "python3.11", "python3.12", "python3.13", "rpc", "services", "shells", "skel"),
    *("ca-certificates", "ca-certificates.conf", "ssl/certs", "ssl/openssl.cnf", "terminfo", "vim"),
)
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n"
_FOLDERS = ("etc", "var/lib", "var/log", "var/cache", "mnt", "opt", "srv", "media")
_LARGEST_BYTES = 64 << 20


def make_skeleton(tree: Path) -> None:
    """Fill `tree`; it still has to be settled."""
    if not Path("/bin").is_symlink() or not Path("/lib").is_symlink():
        raise UnavailableError(
            "base.host_not_merged", "On this host /bin and /lib are not in /usr: use another base (debian, tar:, oci:)."
        )
    for name in _FOLDERS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "root").mkdir(mode=0o700)
    (tree / "usr").symlink_to(".")
    for name in _COPIED:
        _copy(Path("/etc") / name, tree / "etc" / name)
    (tree / "etc" / "nsswitch.conf").write_text(_NSSWITCH)
    _set_modes(tree)


def _set_modes(tree: Path) -> None:
    """A machine's user reads them, whatever umask the process that makes them has (a node's is strict)."""
    for folder, _, _ in os.walk(tree):
        if folder != str(tree / "root"):
            Path(folder).chmod(0o755)
    (tree / "etc" / "nsswitch.conf").chmod(0o644)


def _copy(source: Path, target: Path) -> None:
    """Copy what anybody may read, links as links. Owners become root: these files are looked at, not used."""
    try:
        found = source.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.readlink())
    elif stat.S_ISDIR(found.st_mode) and found.st_mode & 0o005 == 0o005:
        target.mkdir(parents=True, exist_ok=True)
        for child in sorted(source.iterdir()):
            _copy(child, target / child.name)
    elif stat.S_ISREG(found.st_mode) and found.st_mode & 0o004 and found.st_size <= _LARGEST_BYTES:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target, follow_symlinks=False)
        target.chmod(0o755 if found.st_mode & 0o001 else 0o644)


class _Seen(NamedTuple):
    """A folder, and the folders below it as they were when it was in this state."""

    state: tuple[int, int, int]  # device, inode, and the time of its last change, which nobody can set back
    below: list[str]


# Of the last walk through each `/usr`, by path.
_seen: dict[str, dict[str, _Seen]] = {}
# A folder that was changed this short a time ago may change again within one tick of the kernel's clock, unseen.
_SETTLED_NS = 2_000_000_000


def fingerprint(usr: Path = USR, status: Path = Path("/var/lib/dpkg/status")) -> str:
    """Whether `/usr` is what it was: the packages, and when each folder last gained, lost or replaced an entry.

    What is written into a file in place is not seen. Installers do not do that: they replace. Each folder is looked at
    every time, its entries only when it was changed since this process listed them.
    """
    hasher = blake3()
    if status.is_file():
        hasher.update(status.read_bytes())
    root = os.fspath(usr)
    before, now, waiting = _seen.get(root, {}), {}, [root]
    settled_ns = SystemClock().now().timestamp() * 1e9 - _SETTLED_NS
    while waiting:
        folder = waiting.pop()
        try:
            found = os.stat(folder)
            state = (found.st_dev, found.st_ino, found.st_ctime_ns)
            seen = before.get(folder)
            if seen is None or seen.state != state:
                seen = _Seen(state, _list(folder))
        except FileNotFoundError:
            continue  # just removed: its parent's time says so
        if found.st_ctime_ns < settled_ns:
            now[folder] = seen
        hasher.update(f"{len(folder)} {folder} {found.st_mtime_ns}\n".encode(errors="surrogateescape"))
        waiting += seen.below
    _seen[root] = now
    return f"blake3:{hasher.hexdigest()}"


def _list(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        below = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    # Compiled Python comes and goes as programs are run; it changes nothing.
    return [path for path in below if not path.endswith("/__pycache__")]
