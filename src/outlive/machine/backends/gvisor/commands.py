"""Programs of the host that a sandbox needs (runsc, mount, mkfs): run with a deadline, in a session of their own.

Their own session: a Ctrl-C in the terminal of the node is not for them, and at the deadline the whole group is ended.
What they say goes to a file, since a sandbox that stays behind inherits it and nobody would read a pipe.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import anyio
from anyio.abc import Process

from outlive.base import DeadlineError, UnavailableError

_TAIL_BYTES = 2_000
_KILL_S = 5.0


class Ended(NamedTuple):
    code: int
    said: str  # the end of its output


async def run_command(argv: Sequence[str], *, output: Path, deadline_s: float) -> Ended:
    """Run to its end. A code that is not 0 is the caller's to judge."""
    try:
        with _created(output) as file:
            process = await anyio.open_process(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/", start_new_session=True
            )
    except FileNotFoundError as error:
        raise UnavailableError(
            "sandbox.no_program", f"{argv[0]!r} or {str(output.parent)!r} is not there: run `scripts/setup`."
        ) from error
    try:
        with anyio.fail_after(deadline_s):
            code = await process.wait()
    except TimeoutError as error:
        raise DeadlineError(
            "sandbox.slow", f"{_name(argv)} did not end within {deadline_s:.0f} s.", said=_tail(output)
        ) from error
    finally:
        await _end(process)
    return Ended(code, _tail(output))


async def check_command(argv: Sequence[str], *, output: Path, deadline_s: float) -> None:
    ended = await run_command(argv, output=output, deadline_s=deadline_s)
    if ended.code != 0:
        raise UnavailableError("sandbox.failed", f"{_name(argv)} failed ({ended.code}): {ended.said or 'no word'}.")


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # One that the kernel does not let go of (a hung disk) is left behind: it has its signal.
    with anyio.move_on_after(_KILL_S, shield=True):
        await process.wait()


def _created(file: Path) -> BinaryIO:
    return open(file, "wb")


def _name(argv: Sequence[str]) -> str:
    return Path(argv[0]).name


def _tail(file: Path) -> str:
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _TAIL_BYTES))
            return opened.read(_TAIL_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
