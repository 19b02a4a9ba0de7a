"""What stops a node's machines when the node itself cannot: the watchdog, on real sandboxes."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventually import eventually
from leaks import assert_nothing_left, leftovers
from outlive.base import ConflictError
from outlive.machine.backends.gvisor.processes import find_by_argument
from outlive.machine.backends.gvisor.sandboxes import GvisorSandboxes, open_gvisor_sandboxes
from outlive.machine.sandbox import Guard, Sandbox, Sandboxes
from outlive.testing.sandboxes import Trial
from outlive.testing.standin import make_base
from outlive.wiring.node import cgroup_name

pytestmark = pytest.mark.anyio

# Something that can be seen to run from outside, by the CPU that it takes.
BUSY = "while True: pass"


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    path = tmp_path / "node"
    sandboxes = open_gvisor_sandboxes(path, cgroup_name(path))
    yield Trial(sandboxes, make_base(tmp_path / "base"))
    for sandbox in await sandboxes.find_all():
        await sandboxes.destroy(sandbox)
    assert_nothing_left(path, cgroup_name(path))
    await eventually(lambda: not find_by_argument(str(path)))  # the watchdog ends with the last sandbox


async def _runs(sandboxes: Sandboxes, sandbox: Sandbox) -> bool:
    before = (await sandboxes.usage(sandbox)).cpu_s

    async def has_used_cpu() -> bool:
        return (await sandboxes.usage(sandbox)).cpu_s > before

    try:
        await eventually(has_used_cpu, within_s=1.0)  # on a busy host one that runs has to wait for its turn
    except AssertionError:
        return False
    return True


async def _stands_still(sandboxes: Sandboxes, sandbox: Sandbox) -> bool:
    return not await _runs(sandboxes, sandbox)


async def _runs_guarded(sandboxes: Sandboxes, guard: Guard, sandbox: Sandbox) -> None:
    """The watchdog is there, and a word is good for long: the next one is not over before it is heard."""
    await guard.keep(guard.now() + 60.0, may_run=True)
    await eventually(lambda: _runs(sandboxes, sandbox), within_s=30)


async def test_machines_stand_still_when_the_last_word_is_over_and_go_on_with_the_next(trial: Trial) -> None:
    sandboxes = trial.sandboxes
    one = await trial.started(trial.plan(program=BUSY))
    async with sandboxes.guarded() as guard:
        await _runs_guarded(sandboxes, guard, one)
        await guard.keep(guard.now() + 1.0, may_run=True)
        await eventually(lambda: _stands_still(sandboxes, one), within_s=30)
        await sandboxes.thaw(one)
        assert await _stands_still(sandboxes, one)  # its own freezer has nothing to say here
        await guard.keep(guard.now() + 60.0, may_run=False)
        assert await _stands_still(sandboxes, one)
        await guard.keep(guard.now() + 60.0, may_run=True)
        await eventually(lambda: _runs(sandboxes, one), within_s=30)


async def test_a_node_that_is_gone_has_its_machines_stopped_all_the_same(trial: Trial) -> None:
    sandboxes = trial.sandboxes
    one = await trial.started(trial.plan(program=BUSY))
    async with sandboxes.guarded() as guard:
        await _runs_guarded(sandboxes, guard, one)
        await guard.keep(guard.now() + 5.0, may_run=True)
    assert await _runs(sandboxes, one)
    await eventually(lambda: _stands_still(sandboxes, one), within_s=30)
    await sandboxes.destroy(one)  # also what stands still can be ended
    assert await sandboxes.find_all() == []


async def test_a_watchdog_that_was_killed_is_replaced_with_the_next_word(trial: Trial, tmp_path: Path) -> None:
    sandboxes = trial.sandboxes
    one = await trial.started(trial.plan(program=BUSY))
    async with sandboxes.guarded() as guard:
        await guard.keep(guard.now() + 60.0, may_run=True)
        [first] = find_by_argument(str(tmp_path / "node"))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not find_by_argument(str(tmp_path / "node")))
        await guard.keep(guard.now() + 0.5, may_run=True)
        await eventually(lambda: _stands_still(sandboxes, one), within_s=30)


async def test_a_place_has_one_node_at_a_time(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlive.machine.backends.gvisor.guard._LOCK_WITHIN_S", 0.2)
    assert isinstance(trial.sandboxes, GvisorSandboxes)
    async with trial.sandboxes.guarded():
        with pytest.raises(ConflictError, match="Another node"):
            async with trial.sandboxes.guarded():
                pass


async def test_a_watchdog_whose_nodes_folder_was_removed_ends_and_leaves_nothing(trial: Trial, tmp_path: Path) -> None:
    path = tmp_path / "node"
    async with trial.sandboxes.guarded() as guard:
        await guard.keep(guard.now() + 600.0, may_run=True)
        assert find_by_argument(str(path))
        path.rename(tmp_path / "elsewhere")
        await eventually(lambda: not find_by_argument(str(path)), within_s=20)
        assert leftovers(path, cgroup_name(path)) == []
        (tmp_path / "elsewhere").rename(path)
