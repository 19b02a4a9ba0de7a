"""What the API shows to the nodes: the token of the settings, else one that is made once and kept under home.

Whichever process comes first makes it; the others find it. It is there whole or not at all, and only its owner may read
it.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from outlive.base import InvalidError
from outlive.wiring.settings import Settings


def ensure_node_token(settings: Settings) -> str:
    """The node token in force."""
    if settings.node.token is not None:
        return settings.node.token.get_secret_value()
    path = settings.node_token_path
    try:
        return _read(path) or _make(path)
    except OSError as error:
        raise InvalidError("node.no_token", f"{str(path)!r} cannot be used: {error.strerror}.") from None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None


def _make(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):  # another process was first: its token counts
            os.link(waiting, path)
    finally:
        waiting.unlink()
    return path.read_text(encoding="ascii").strip()
