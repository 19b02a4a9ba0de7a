"""The contract of sandboxes with gVisor, and what is special to it: what is alive, and a node killed at any moment."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eventually import eventually
from leaks import assert_nothing_left
from outlive.machine.backends.gvisor import open_gvisor_sandboxes
from outlive.machine.sandbox import Sandbox, Sandboxes
from outlive.testing.sandboxes import SandboxesContract, Trial


def cgroup_of(tmp_path: Path) -> str:
    return f"outlive-test/{os.getpid()}-{tmp_path.name}"


class TestGvisorSandboxes(SandboxesContract):
    @pytest.fixture
    def open_sandboxes(self, tmp_path: Path) -> Callable[[], Sandboxes]:
        return lambda: open_gvisor_sandboxes(tmp_path / "node", cgroup_of(tmp_path))

    def check_nothing_left(self, tmp_path: Path) -> None:
        assert_nothing_left(tmp_path / "node", cgroup_of(tmp_path))

    async def dies(self, trial: Trial, sandbox: Sandbox) -> None:
        async def is_dead() -> bool:
            return await trial.sandboxes.state(sandbox) == "dead"

        await eventually(is_dead)
