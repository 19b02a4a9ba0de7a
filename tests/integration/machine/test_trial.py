"""The doctor's sandbox boots where one can, and leaves nothing, whatever was there before."""

from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from leaks import assert_nothing_left
from outlive.base import ConflictError, NotFoundError, new_machine_id
from outlive.machine.backends.bases import ensure_runtime
from outlive.machine.backends.gvisor.sandboxes import open_gvisor_sandboxes
from outlive.machine.sandbox import SandboxPlan
from outlive.machine.spec import Limits
from outlive.wiring.node import cgroup_name
from outlive.wiring.settings import Settings, read_settings
from outlive.wiring.trial import try_sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"home": tmp_path / "home"})
    make = partial(ensure_runtime, settings.machines.cache / "runtimes", say=lambda line: None)
    await anyio.to_thread.run_sync(make)
    return settings


async def test_a_trial_boots_one_sandbox_at_a_time_and_removes_it_and_what_a_killed_trial_left(
    settings: Settings,
) -> None:
    place = settings.home / "trial"
    sandboxes = open_gvisor_sandboxes(place, cgroup_name(place))
    (place / "base").mkdir()
    plan = SandboxPlan(new_machine_id(), 1, Limits(disk_mib=32), (place / "base",), place / "base", ("/x",), "left")
    await sandboxes.prepare(plan)  # as one that was killed before it could clean up

    ended: list[float | str] = []

    async def try_and_tell() -> None:
        try:
            ended.append(await try_sandbox(settings))
        except ConflictError as error:
            ended.append(error.code)

    async with anyio.create_task_group() as group:
        group.start_soon(try_and_tell)
        group.start_soon(try_and_tell)
    assert "sandbox.trial" in ended
    assert [took for took in ended if isinstance(took, float) and took > 0]
    assert not place.exists()
    assert_nothing_left(place, cgroup_name(place))


async def test_without_a_runtime_nothing_is_tried_and_that_is_said(tmp_path: Path) -> None:
    settings = read_settings({"home": tmp_path / "home", "machines": {"cache": tmp_path / "cache"}})
    with pytest.raises(NotFoundError) as raised:
        await try_sandbox(settings)
    assert raised.value.code == "runtime.missing"
    assert not settings.home.exists()
