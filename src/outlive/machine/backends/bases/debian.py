"""The default base: a small Debian with a developer's tools, made by mmdebstrap from this host's own mirror.

The recipe has a name of its own: what it says, not what came out. A change here must raise `VERSION`, or hosts keep
what they have.
"""

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from outlive.base import BrokenError, DeadlineError, UnavailableError
from outlive.machine.backends.bases.apt_sources import Source, read_sources, sources_of
from outlive.machine.backends.bases.confined import run_confined
from outlive.machine.backends.bases.tree_cache import Say

VERSION = 1
PACKAGES = (
    *("bash", "build-essential", "ca-certificates", "curl", "file", "git", "less", "procps"),
    *("python3", "python3-venv", "unzip", "vim-tiny", "xz-utils", "zstd"),
)
_WITHIN_S = 1_800.0
_LAST_LINES = 15
# Kept out of the tree: nobody reads manuals in there, and they are a tenth of it. Licences stay.
_DPKG_OPTIONS = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/bug/*",
)
_REMEDY = "use another base (host, dir:, tar: or oci:)"


def recipe_name(extra: tuple[str, ...]) -> str:
    packages = ",".join(sorted({*PACKAGES, *extra}))
    return f"debian {VERSION} {codename()} {os.uname().machine} {packages}"


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """Of the Debian that this host is: its mirror is known to have that one."""
    try:
        lines = os_release.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    name = fields.get("VERSION_CODENAME", "").strip('"')
    if fields.get("ID", "").strip('"') != "debian" or not name:
        raise UnavailableError("base.not_debian", f"The base `debian` is made on Debian only: {_REMEDY}.")
    return name


def make_debian(tree: Path, extra: tuple[str, ...], say: Say) -> None:
    """Fill `tree`. It still has to be settled: mmdebstrap leaves devices and this host's resolv.conf."""
    release = codename()
    sources = sources_of(release, read_sources())
    if not sources:
        raise UnavailableError(
            "base.no_mirror", f"No source in /etc/apt names a Debian mirror for {release}: add one, or {_REMEDY}."
        )
    mirror = tree.with_name("mirror.sources")
    mirror.write_text("\n".join(source.as_deb822() for source in sources))
    packages = sorted({*PACKAGES, *extra})
    say(f"making a Debian {release} tree with {len(packages)} packages and what they need; about a minute")
    if shutil.which("mmdebstrap") is None:
        raise UnavailableError(
            "base.no_mmdebstrap", "mmdebstrap is not installed: run scripts/setup, or apt-get install mmdebstrap."
        )
    _run([*_mmdebstrap(packages), release, str(tree), str(mirror)], say)
    _leave_no_trace(tree, sources)


def _mmdebstrap(packages: list[str]) -> Iterator[str]:
    yield from ("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory")
    yield f"--include={','.join(packages)}"
    yield '--aptopt=APT::Install-Recommends "false"'
    yield '--aptopt=APT::Sandbox::User "root"'  # apt's own user cannot get into a folder that is ours alone
    for line in _proxies():
        yield f"--aptopt={line}"
    for option in _DPKG_OPTIONS:
        yield f"--dpkgopt={option}"


def _proxies() -> list[str]:
    """How this host's apt gets out, if through a proxy."""
    dumped = subprocess.run(
        ["/usr/bin/apt-config", "dump"], capture_output=True, text=True, timeout=30, check=False
    ).stdout
    wanted = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CaInfo", "Acquire::https::CAInfo")
    return [line for line in dumped.splitlines() if line.startswith(wanted) and not line.endswith('"";')]


def _run(argv: list[str], say: Say) -> None:
    lines: deque[str] = deque(maxlen=_LAST_LINES)

    def hear(line: str) -> None:
        lines.append(line)
        if line.startswith("I: "):
            say(line.removeprefix("I: "))

    settings = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    proxies = {name: os.environ[name] for name in ("http_proxy", "https_proxy", "no_proxy") if name in os.environ}
    code = run_confined(argv, settings | proxies, hear, within_s=_WITHIN_S)
    if code is None:
        raise DeadlineError("base.slow", f"mmdebstrap took more than {_WITHIN_S:g} s; is the mirror well?")
    if code != 0:
        raise UnavailableError("base.mmdebstrap", "mmdebstrap failed; it said last:\n  " + "\n  ".join(lines))


def _leave_no_trace(tree: Path, sources: list[Source]) -> None:
    """A mirror may carry a password, and proxies are this host's: neither belongs into a machine.

    The tree comes from Debian's packages alone, so that its folders are what they seem."""
    apt = tree / "etc" / "apt"
    if apt.is_symlink() or not apt.is_dir():
        raise BrokenError("base.mmdebstrap", "mmdebstrap made a tree without /etc/apt.")
    for path in [apt / "sources.list", *(apt / "sources.list.d").iterdir(), apt / "apt.conf.d" / "99mmdebstrap"]:
        path.unlink(missing_ok=True)
    clean = (source._replace(uris=tuple(map(without_password, source.uris))) for source in sources)
    listed = apt / "sources.list.d" / "debian.sources"
    listed.write_text("\n".join(source.as_deb822() for source in clean))
    listed.chmod(0o644)  # whatever umask this process has
    shadow = tree / "etc" / "shadow"  # says when each password was last changed: the day of the making
    shadow.write_text(re.sub(r"(?m)^([^:]*:[^:]*:)\d+:", r"\g<1>1:", shadow.read_text()))
    for name in ("alternatives.log", "bootstrap.log", "dpkg.log", "apt/history.log", "apt/term.log", "apt/eipp.log.xz"):
        (tree / "var" / "log" / name).unlink(missing_ok=True)
    for path in [*(tree / "var" / "cache" / "debconf").glob("*-old"), *(tree / "var" / "cache" / "ldconfig").iterdir()]:
        path.unlink()


def without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
