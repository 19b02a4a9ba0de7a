"""Small files that only their owner may read, written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_private(path: Path, content: str, before_rename: Callable[[], None] = lambda: None) -> None:
    """Replace `path` by `content` with mode 0600, durably: whoever reads, also after a crash, sees the old or the new.

    One writer at a time (callers hold a lock): the new content waits under one fixed name, so that a crash leaves at
    most one leftover, which the next write takes over.
    """
    waiting = path.with_name(f".{path.name}.new")
    descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    before_rename()
    waiting.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
