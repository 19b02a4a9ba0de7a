"""A home of its own for a stack, the command as a user runs it, and plain HTTP to what it started."""

import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio

from eventually import eventually_sync
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.processes import proc
from outlive.processes.stack import stop
from outlive.wiring.node import cgroup_name
from outlive.wiring.settings import Home as OutliveHome

COMMAND = [sys.executable, "-m", "outlive"]
Result = subprocess.CompletedProcess[str]


def stand_still(pid: int) -> None:
    """Stop a process that hears nothing from then on. Until it stands still a signal that ends it comes first."""
    os.kill(pid, signal.SIGSTOP)
    eventually_sync(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", 30.0)


class Home:
    """`$OUTLIVE_HOME` of one test. Whatever it started is ended by `stop`."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.path = path
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        # Free ports, and no patience: a test does not want to wait for a restart. Machines only where a test asks.
        given = {
            "OUTLIVE_HOME": str(path),
            "OUTLIVE_API__PORT": "0",
            "OUTLIVE_SUPERVISOR__FIRST_DELAY_S": "0.05",
            "OUTLIVE_MACHINES__ENABLED": "off",
        }
        self.environment = {**inherited, **given, **environment}

    def run(self, *arguments: str, **environment: str) -> Result:
        """Run a command to its end. Returns only when nobody holds its stdout and stderr any more."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def up(self, *arguments: str, **environment: str) -> Any:
        result = self.run("up", "--detach", "--json", *arguments, **environment)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def up_within(self, limits: str) -> None:
        """`up` under limits of the system, as `ulimit` sets them."""
        result = subprocess.run(
            ["/bin/sh", "-c", f'{limits} && exec "$0" "$@"', *COMMAND, "up", "--detach"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert result.returncode == 0, result.stderr

    @contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
        """Run a command beside the test; it is killed at the end if it has not ended."""
        with subprocess.Popen(
            [*COMMAND, *arguments],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def stop(self, grace_s: float = 10.0) -> list[int]:
        """What `outlive down` does, without the start of a process."""
        return stop(OutliveHome(self.path), grace_s)

    def end_sandboxes(self) -> None:
        """End what the node left running: sandboxes outlive it."""
        path = self.path / "node"
        if not path.exists():
            return
        sandboxes = open_gvisor_sandboxes(path, cgroup_name(path))

        async def end_all() -> None:
            for sandbox in await sandboxes.find_all():
                await sandboxes.destroy(sandbox)

        anyio.run(end_all)
        assert_nothing_left(path, cgroup_name(path), are_asleep=True)

    # ── what it left ──

    @property
    def endpoint(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.path / "endpoint.json").read_text())
        return found

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "run" / "supervisor.json").read_text())
        return found

    def child(self, name: str) -> dict[str, Any]:
        [found] = [child for child in self.record["children"] if child["name"] == name]
        return dict(found)

    def pid_of(self, name: str) -> int:
        return int(self.child(name)["pid"])

    def descriptor_limits(self, name: str) -> list[str]:
        """How many files that child may have open: the limit, and how far it may be raised."""
        lines = Path(f"/proc/{self.pid_of(name)}/limits").read_text().splitlines()
        [limits] = [line.split()[3:5] for line in lines if line.startswith("Max open files")]
        return limits

    def api_pid(self) -> int:
        return self.pid_of("api")

    def processes(self) -> list[proc.Process]:
        """The supervisor and all that it keeps running."""
        record = self.record
        found = [proc.find(pid) for pid in (record["pid"], *(child["pid"] for child in record["children"]))]
        assert None not in found
        return [process for process in found if process]

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        eventually_sync(lambda: proc.find(pid) is None)

    def query(self, statement: str) -> list[tuple[str, ...]]:
        """What its database says."""
        with closing(sqlite3.connect(f"file:{self.path / 'outlive.db'}?mode=ro", uri=True)) as database:
            return database.execute(statement).fetchall()

    # ── talking to it ──

    def call(self, method: str, path: str, body: object = None, url: str | None = None, key: str | None = None) -> Any:
        endpoint = self.endpoint
        request = urllib.request.Request(
            (url or endpoint["url"]) + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {endpoint['token']}",
                "Content-Type": "application/json",
                "Idempotency-Key": key or uuid.uuid4().hex,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace"))  # the problem that says why
            raise

    def post(self, path: str, body: object = None) -> Any:
        return self.call("POST", path, {} if body is None else body)

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def create(self, title: str) -> str:
        return str(self.call("POST", "/v1/conversations", {"title": title})["id"])

    def titles(self) -> list[str]:
        return [item["title"] for item in self.call("GET", "/v1/conversations")["items"]]

    def is_ready(self) -> bool:
        try:
            return bool(self.call("GET", "/readyz")["ready"])
        except (OSError, urllib.error.URLError):
            return False


def make_certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=outlive.test"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:outlive.test"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def trusting(cert: Path) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=str(cert))
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
