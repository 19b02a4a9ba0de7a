"""Bases: what the filesystem of a machine starts from. Pure: how one is named, and what is known of one that is made.

Rule 1: a reference (`debian`, `tar:/srv/image.tar`) is what a person writes; a key is what it stood for. Machines are
        booted from keys, so that the same reference may stand for something newer tomorrow.
Rule 2: what is at a key never changes. The one exception says so (`is_immutable`): `host` shows the host's own `/usr`,
        and its fingerprint tells whether that is still the same.
"""

import re
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from outlive.base import InvalidError

BaseKind = Literal["debian", "host", "dir", "tar", "oci"]
KINDS: tuple[BaseKind, ...] = get_args(BaseKind)
DEFAULT_REFERENCE = "debian"

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]{1,60}")
_KEY = re.compile(r"[0-9a-f]{32}")
_FORMS = "debian, debian:PACKAGE,..., host, dir:/path, tar:/path, oci:/path or oci:/path#NAME"
_LONGEST = 4_096
_PACKAGES = 200


class Reference(NamedTuple):
    """A reference taken apart. `path` is set for the kinds that read something from disk."""

    kind: BaseKind
    path: Path | None = None
    name: str | None = None  # which image of an `oci` that holds several
    packages: tuple[str, ...] = ()  # what a `debian` has beyond the usual


class Base(NamedTuple):
    """A base that is there. `layers` are the lower directories of an overlay, topmost first; `path` is the topmost."""

    key: str
    kind: BaseKind
    path: Path
    fingerprint: str
    is_immutable: bool
    layers: tuple[Path, ...]
    env: tuple[tuple[str, str], ...] = ()  # what an image says its commands need, such as PATH


class Runtime(NamedTuple):
    """The guest with all it needs to run on any base. Bound to `/.outlive`; `argv` starts it there as PID 1."""

    key: str
    path: Path
    argv: tuple[str, ...]


def parse_reference(text: str) -> Reference:
    """Take a reference apart; `InvalidError` if it is none."""
    kind, _, rest = text.partition(":")
    match kind:
        case "debian":
            if ":" in text:
                return Reference("debian", packages=_packages(text, rest))
            return Reference("debian")
        case "host" if ":" not in text:
            return Reference("host")
        case "dir" | "tar":
            return Reference(kind, path=_path(text, rest))
        case "oci":
            path, _, name = rest.partition("#")
            return Reference("oci", path=_path(text, path), name=name or None)
        case _:
            raise InvalidError("base.reference", f"No base is named {text!r}: use {_FORMS}.")


def check_key(key: str) -> str:
    """`key`, if it has the form of one: it becomes part of a path."""
    if not _KEY.fullmatch(key):
        raise InvalidError("base.key", f"{key!r} is no key of a base: `outlive base list` shows them.")
    return key


def _packages(text: str, rest: str) -> tuple[str, ...]:
    names = tuple(sorted(set(rest.split(","))))
    if len(names) > _PACKAGES or not all(_PACKAGE.fullmatch(name) for name in names):
        raise InvalidError(
            "base.reference", f"{text!r} does not name Debian packages: write debian:PACKAGE,PACKAGE (such as nodejs)."
        )
    return names


def _path(text: str, path: str) -> Path:
    has_controls = any(ord(character) < 32 for character in path)
    if not path.startswith("/") or ".." in path.split("/") or has_controls or len(path) > _LONGEST:
        raise InvalidError("base.reference", f"{text!r} does not name a full path: write it from / on, without `..`.")
    return Path(path)
