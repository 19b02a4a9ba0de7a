"""One program in one real sandbox, run to its end: no node, no overlay of a machine, just gVisor."""

import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from outlive.machine.base import Runtime

WITHIN_S = 60.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_in_sandbox(folder: Path, root: Path, runtime: Runtime, argv: Sequence[str], user: int = 0) -> Ended:
    """Run `argv` as PID 1 on the tree at `root`, with the runtime where it belongs."""
    bundle = folder / uuid.uuid4().hex
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(_config(root, runtime, argv, user)))
    flags = [f"--root={bundle}/state", "--network=none", "--host-uds=open", "--overlay2=none", "--platform=systrap"]
    runsc = ["runsc", *flags, "--ignore-cgroups"]
    try:
        done = subprocess.run(
            [*runsc, "run", "--bundle", bundle, bundle.name], capture_output=True, text=True, timeout=WITHIN_S
        )
    finally:
        subprocess.run([*runsc, "delete", "-force", bundle.name], capture_output=True, timeout=WITHIN_S)
    return Ended(done.returncode, done.stdout, done.stderr)


def _config(root: Path, runtime: Runtime, argv: Sequence[str], user: int) -> dict[str, object]:
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": list(argv),
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "machine",
        "mounts": [
            {"destination": "/proc", "type": "proc"},
            {"destination": "/tmp", "type": "tmpfs"},
            {"destination": "/.outlive", "type": "bind", "source": str(runtime.path), "options": ["ro", "bind"]},
        ],
        "linux": {"namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")]},
    }


@contextmanager
def overlay(layers: Sequence[Path], place: Path) -> Iterator[Path]:
    """The layers of a base as one tree, read-only."""
    place.mkdir()
    options = f"lowerdir={':'.join(map(str, layers))}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place], check=True, timeout=10)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=10)
