"""`endpoint.json`: where the API is and the token that opens it. What clients on this host read.

The token is made once, at the first start, and kept: a restart does not lock anybody out. To change it, stop the stack,
remove the file, and start again; the old token is then nobody's.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from outlive.base import CrashPoint, reach
from outlive.processes.private_file import write_private

_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Endpoint:
    url: str
    token: str = field(repr=False)


def read_endpoint(path: Path) -> Endpoint | None:
    """What the file says; None if there is none, or it is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        url, token = data["url"], data["token"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Endpoint(url, token) if isinstance(url, str) and isinstance(token, str) and token else None


def publish(path: Path, run_path: Path, url: str, token: str | None = None, *, keeps_address: bool = False) -> Endpoint:
    """Tell clients that the API is at `url`, and with which token: the one given, else the one in the file, else a new
    one. Mode 0600. With `keeps_address` an address that is in the file already stays there. Returns our own."""
    with _alone(run_path):
        known = read_endpoint(path)
        token = token or (known.token if known else secrets.token_urlsafe(_TOKEN_BYTES))
        told = known.url if known and keeps_address else url
        content = json.dumps({"url": told, "token": token}) + "\n"
        write_private(path, content, lambda: reach(CrashPoint.ENDPOINT_BEFORE_RENAME))
    return Endpoint(url, token)


@contextmanager
def _alone(run_path: Path) -> Iterator[None]:
    """Two API processes of one home take turns. Held for one small write, never across anything that waits."""
    descriptor = os.open(run_path / "endpoint.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
