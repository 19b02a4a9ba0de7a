"""Where a benchmark works: a folder of its own and processes of its own, gone when it ends, whatever ends it.

Every process gets a pipe as standard input and ends when that is closed, so none outlives a bench that was killed.
"""

import json
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

READY_S = 60.0
STOP_S = 10.0


class Process:
    """A process that speaks JSON lines on its standard output."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], errors: Path) -> None:
        self._name = " ".join(argv[1:4])
        self._errors = errors
        with errors.open("wb") as stderr:
            self._popen = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=dict(env), process_group=0
            )
        self.pid = self._popen.pid
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def hear(self, deadline_s: float = READY_S) -> dict[str, Any]:
        """The next thing it says."""
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"{self._name}: said nothing for {deadline_s} s\n{self.errors()}") from None
            if not line:
                raise RuntimeError(f"{self._name}: ended\n{self.errors()}")
            if line.startswith(b"{"):
                return cast("dict[str, Any]", json.loads(line))

    def tell(self, **words: Any) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(words).encode() + b"\n")
        self._popen.stdin.flush()

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-4_000:] if self._errors.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def stop(self) -> None:
        if self.is_running:
            self._popen.send_signal(signal.SIGTERM)
        if self._popen.stdin is not None:
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(STOP_S)
        self._reader.join(STOP_S)
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    def cpu_s(self) -> float:
        """The processor time it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """The memory it holds that nobody else does, in bytes."""
        return pss_of(self.pid)


def pss_of(pid: int) -> int:
    """Bytes; pages that are shared count for a part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Pss in smaps_rollup")


class Workshop:
    """Made by `open_workshop`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._count = 0

    def path(self, name: str) -> Path:
        """A new folder."""
        self._count += 1
        made = self.folder / f"{self._count:02}-{name}"
        made.mkdir(mode=0o700)
        return made

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        self._count += 1
        process = Process(argv, {**os.environ, **(env or {})}, self.folder / f"{self._count:02}.stderr")
        self._stack.callback(process.stop)
        return process

    def start_python(self, module: str, *arguments: str) -> Process:
        """One of the modules of this package as a process of its own."""
        return self.start([sys.executable, "-m", module, *arguments])


@contextmanager
def open_workshop() -> Iterator[Workshop]:
    folder = Path(tempfile.mkdtemp(prefix="outlive-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Workshop(folder, stack)


def raise_descriptor_limit(wanted: int) -> None:
    """As many descriptors as `wanted`, as far as this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
