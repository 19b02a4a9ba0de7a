"""Log lines and log files: JSON lines on stderr, files that stay below a bound."""

import json
import logging
import os
import shutil
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from outlive.base import to_text

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_TAIL_BYTES = 64 * 1024


class JsonLines(logging.Formatter):
    """One JSON object per line; what a caller put into `extra` is in it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": to_text(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _PLAIN)
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


def log_to_stderr() -> None:
    """Send everything that is logged in this process to stderr, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # What the server says of its own start and end is said by `api.py` already.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # One line for each call of a model: what it was is in the conversation's log.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    # It quotes what strangers' servers say.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def open_log(path: Path) -> BinaryIO:
    """The file, to append to. Its owner alone may read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "ab")


def rotate(path: Path, limit: int) -> None:
    """Move the content aside (to `<name>.1`, over what was there) once the file is bigger than `limit`.

    Copied and cut, not renamed: a process that holds the file open for appending goes on in the same file. Lines that
    come between copying and cutting are lost; these are logs, and the bound matters more. It also matters more than the
    older content: what cannot be copied (a full disk) is cut all the same. Never raises: no log is worth a stack.
    """
    with suppress(OSError):
        if path.stat().st_size <= limit:
            return
        with suppress(OSError):
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)


def tail(path: Path, lines: int, after: int = 0) -> list[str]:
    """The last lines of a file, of what comes after byte `after`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(after if after <= size else 0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []
