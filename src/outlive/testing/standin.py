"""A stand-in for the guest: PID 1 that does what the host says, in Python, and nothing else. For tests of sandboxes.

It runs the host's own Python, found at /.outlive, which is the host's /usr then: no base has to be made. It dials
`/run/outlive/ctl.sock`, takes one program, runs it, answers with what it printed, hangs up and dials again, unless it
was told to be quiet: then no socket of the host is open, and its memory can be saved.
"""

import contextlib
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio

from outlive.machine.sandbox import Sandbox

RUNTIME = Path("/usr")
_LIBRARIES = f"lib/{platform.machine()}-linux-gnu"
_ANSWER_S = 30.0
_ANSWER_BYTES = 1 << 20

_PROGRAM = r"""
import contextlib, io, os, socket, time, traceback
is_quiet = False
while True:
    if is_quiet and not os.path.exists("/run/outlive/speak"):
        time.sleep(0.01)
        continue
    is_quiet = False
    with socket.socket(socket.AF_UNIX) as host:
        try:
            host.connect("/run/outlive/ctl.sock")
        except OSError:
            time.sleep(0.01)
            continue
        with contextlib.suppress(OSError), host.makefile("rwb") as stream:
            program = stream.readline()
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    exec(eval(program or "''"), globals())
            except BaseException:
                printed.write(traceback.format_exc())
            stream.write(printed.getvalue().encode())
"""


def python_argv(program: str) -> tuple[str, ...]:
    """Run `program` with the Python at /.outlive, whatever the base has."""
    return (
        f"/.outlive/{_LIBRARIES}/{_loader()}",
        "--library-path",
        f"/.outlive/{_LIBRARIES}",
        "/.outlive/bin/python3",
        *("-I", "-S", "-B", "-c", program),
    )


def standin_argv() -> tuple[str, ...]:
    return python_argv(_PROGRAM)


def make_base(folder: Path) -> Path:
    """The smallest tree that will do."""
    for place in ("dev", "etc", "home/agent", "proc", "run", "sys", "tmp", "var/tmp", "workspace"):
        (folder / place).mkdir(parents=True)
    (folder / "etc" / "base").write_text("of the base\n")
    os.chown(folder / "workspace", 1000, 1000)
    return folder


class StandIn:
    """The host's end. Ask within `listening`."""

    def __init__(self, listener: socket.socket, speak: Path) -> None:
        self._listener = listener
        self._speak = speak

    async def ask(self, program: str) -> str:
        """Run it inside; what it printed, or its traceback."""
        with anyio.fail_after(_ANSWER_S):
            return await anyio.to_thread.run_sync(self._ask, program, abandon_on_cancel=True)

    async def hush(self) -> None:
        """It has hung up when this returns, and dials again when the host listens again."""
        self._speak.unlink()
        await self.ask("is_quiet = True")

    def _ask(self, program: str) -> str:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rwb") as stream:
            connection.settimeout(_ANSWER_S)
            stream.write(repr(program).encode() + b"\n")
            stream.flush()
            return stream.read(_ANSWER_BYTES).decode()


@contextlib.contextmanager
def listening(sandbox: Sandbox) -> Iterator[StandIn]:
    speak = sandbox.host_path / "speak"
    folder = os.open(sandbox.host_path, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            (sandbox.host_path / "ctl.sock").unlink(missing_ok=True)
            listener.bind(f"/proc/self/fd/{folder}/ctl.sock")  # a path of a socket has at most 107 bytes
            listener.listen(8)
            listener.settimeout(_ANSWER_S)
            speak.touch()
            yield StandIn(listener, speak)
    finally:
        speak.unlink(missing_ok=True)
        (sandbox.host_path / "ctl.sock").unlink(missing_ok=True)
        os.close(folder)


def _loader() -> str:
    found = sorted((RUNTIME / _LIBRARIES).glob("ld-linux*.so.*"))
    assert found, f"no dynamic loader below {RUNTIME / _LIBRARIES}"
    return found[0].name
