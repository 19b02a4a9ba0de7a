"""The contract of sandboxes with gVisor, and what is special to it: what is alive, and a node killed at any moment."""

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from leaks import assert_nothing_left, leftovers
from outlive.base import BrokenError, InvalidError, UnavailableError
from outlive.machine.backends.gvisor import open_gvisor_sandboxes
from outlive.machine.backends.gvisor.processes import is_alive
from outlive.machine.backends.gvisor.record import Process
from outlive.machine.sandbox import Sandbox, Sandboxes
from outlive.testing.sandboxes import SMALL, SandboxesContract, Trial


def cgroup_of(tmp_path: Path) -> str:
    return f"outlive-test/{os.getpid()}-{tmp_path.name}"


def memory_limit(cgroup: str) -> Path:
    v1 = Path("/sys/fs/cgroup/memory") / cgroup / "memory.limit_in_bytes"
    return v1 if v1.exists() else Path("/sys/fs/cgroup") / cgroup / "memory.max"


def vital_pids(sandbox: Sandbox) -> dict[str, int]:
    """Of the record: name of the program -> pid."""
    pids = [process["pid"] for process in json.loads((sandbox.path / "sandbox.json").read_text())["processes"]]
    return {Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]: pid for pid in pids}


# Goes through a life again and again, until it is killed.
_NODE = """
import sys, anyio
from pathlib import Path
from outlive.base import new_machine_id
from outlive.machine.backends.gvisor import open_gvisor_sandboxes
from outlive.testing.sandboxes import Trial
async def main():
    trial = Trial(open_gvisor_sandboxes(Path(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
    while True:
        await trial.sandboxes.destroy(await trial.started())
anyio.run(main)
"""


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
        assert await trial.sandboxes.has_disk(sandbox), "it died, and what it wrote is there"

    async def test_every_process_of_a_sandbox_is_under_its_limits(self, trial: Trial, tmp_path: Path) -> None:
        sandbox = await trial.started()
        names = vital_pids(sandbox)
        assert set(names) == {"runsc-sandbox", "runsc-gofer"}
        for pid in names.values():
            lines = (await anyio.Path(f"/proc/{pid}/cgroup").read_text()).splitlines()
            for controller in ("memory", "cpu", "pids", "freezer"):
                line = next((line for line in lines if controller in line.split(":")[1].split(",")), lines[-1])
                assert f"/{cgroup_of(tmp_path)}/{sandbox.machine}-00000001" in line, line
        assert "cgroup" in "".join(leftovers(tmp_path / "node", cgroup_of(tmp_path))), "the check of leaks sees it"

    async def test_the_machine_sees_its_limits_and_not_the_hosts(self, trial: Trial) -> None:
        sandbox = await trial.started()
        meminfo = await trial.ask(sandbox, "print(open('/proc/meminfo').readline())")
        assert int(meminfo.split()[1]) == SMALL.memory_mib << 10

    @pytest.mark.parametrize("victim", ["runsc-sandbox", "runsc-gofer"])
    async def test_one_whose_processes_are_killed_is_dead_whatever_runsc_says(self, trial: Trial, victim: str) -> None:
        sandbox, neighbour = await trial.started(), await trial.started()
        os.kill(vital_pids(sandbox)[victim], signal.SIGKILL)
        await self.dies(trial, sandbox)
        assert await trial.ask(neighbour, "print('well')") == "well"

    async def test_a_sandbox_whose_disk_is_gone_is_dead(self, trial: Trial) -> None:
        """As after the host was started again."""
        sandbox = await trial.sandboxes.prepare(trial.plan())
        assert await trial.sandboxes.has_disk(sandbox)
        await anyio.run_process(["umount", str(sandbox.path / "disk")])
        assert await trial.sandboxes.state(sandbox) == "dead"
        assert not await trial.sandboxes.has_disk(sandbox)
        assert await trial.sandboxes.find_all() == [sandbox]

    async def test_one_whose_limits_do_not_hold_is_ended(self, trial: Trial, tmp_path: Path) -> None:
        sandbox, neighbour = await trial.started(), await trial.started()
        limit = memory_limit(f"{cgroup_of(tmp_path)}/{sandbox.machine}-00000001")
        limit.write_text(str(128 << 20))  # as on a host whose controllers are not what they seem
        with pytest.raises(BrokenError) as raised:
            await trial.sandboxes.start(sandbox)
        assert raised.value.code == "sandbox.limits"
        assert await trial.sandboxes.state(sandbox) == "dead"
        assert await trial.ask(neighbour, "print('well')") == "well"

    @pytest.mark.parametrize("moment", ["sandbox.json", "disk.img", "disk/upper", "root", "disk/console.log"])
    async def test_a_node_killed_at_any_moment_leaves_nothing_that_the_next_cannot_destroy(
        self, trial: Trial, open_sandboxes: Callable[[], Sandboxes], tmp_path: Path, moment: str
    ) -> None:
        node = tmp_path / "node"
        process = await anyio.open_process([sys.executable, "-c", _NODE, node, cgroup_of(tmp_path), trial.base])
        try:
            await eventually(lambda: any(node.glob(f"machines/*/*/{moment}")))
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await process.aclose()
        again = open_sandboxes()
        found = await again.find_all()
        assert len(found) <= 1
        for sandbox in found:
            assert await again.state(sandbox) in ("prepared", "dead", "running")
            await again.destroy(sandbox)
        assert_nothing_left(node, cgroup_of(tmp_path))

    async def test_what_a_killed_node_had_begun_mounts_nothing_after_the_end(
        self, trial: Trial, open_sandboxes: Callable[[], Sandboxes]
    ) -> None:
        sandbox = await trial.sandboxes.prepare(trial.plan())
        await anyio.run_process(["umount", str(sandbox.path / "disk")])
        mount = ("mount", "-n", "-o", "loop", str(sandbox.path / "disk.img"), str(sandbox.path / "disk"))
        on_its_way = await anyio.open_process(["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *mount])
        try:
            await open_sandboxes().destroy(sandbox)
            with anyio.fail_after(20):
                assert await on_its_way.wait() == -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                on_its_way.kill()
            await on_its_way.aclose()

    async def test_an_end_that_was_cut_off_by_a_late_mount_can_be_asked_for_again(
        self, trial: Trial, open_sandboxes: Callable[[], Sandboxes]
    ) -> None:
        sandbox = await trial.sandboxes.prepare(trial.plan())
        for entry in sandbox.path.iterdir():  # all that could be removed is
            if entry.is_dir() and not entry.is_mount():
                shutil.rmtree(entry)
            elif entry.is_file():
                entry.unlink()
        await open_sandboxes().destroy(sandbox)
        assert not sandbox.path.parent.exists()

    async def test_a_start_that_was_cut_off_can_be_done_again(self, trial: Trial) -> None:
        sandbox = await trial.started()
        record = sandbox.path / "sandbox.json"
        told = json.loads(record.read_text())
        record.write_text(json.dumps({**told, "phase": "starting", "processes": []}))  # killed before it was noted
        assert await trial.sandboxes.state(sandbox) == "dead"
        await trial.sandboxes.start(sandbox)
        assert await trial.sandboxes.state(sandbox) == "running"
        before = [Process.model_validate(process) for process in told["processes"]]
        assert [process for process in before if is_alive(process)] == []

    async def test_what_was_destroyed_is_not_held_by_those_that_live_on(self, trial: Trial, tmp_path: Path) -> None:
        first = await trial.started()
        neighbours = [await trial.started(), await trial.sandboxes.prepare(trial.plan())]
        await trial.sandboxes.destroy(first)

        def is_gone() -> bool:
            return not any(first.machine in left for left in leftovers(tmp_path / "node", cgroup_of(tmp_path)))

        await eventually(is_gone)
        assert [await trial.sandboxes.state(neighbour) for neighbour in neighbours] == ["running", "prepared"]

    @pytest.mark.parametrize("content", ["", "{", '{"phase": "started"}'])
    async def test_a_record_that_cannot_be_read_keeps_nobody_from_destroying(self, trial: Trial, content: str) -> None:
        sandbox = await trial.started()
        (sandbox.path / "sandbox.json").write_text(content)
        assert await trial.sandboxes.state(sandbox) == "dead"
        (found,) = await trial.sandboxes.find_all()
        assert (found.machine, found.generation) == (sandbox.machine, 1)
        await trial.sandboxes.destroy(found)

    async def test_the_next_generation_is_made_while_the_last_is_destroyed(self, trial: Trial) -> None:
        plan = trial.plan()
        sandbox = await trial.sandboxes.prepare(plan)
        for generation in range(2, 8):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(trial.sandboxes.destroy, sandbox)
                sandbox = await trial.sandboxes.prepare(plan._replace(generation=generation))
        assert await trial.sandboxes.find_all() == [sandbox]

    async def test_the_root_of_a_machine_is_open_to_its_users_whatever_the_umask_of_the_node(
        self, trial: Trial
    ) -> None:
        before = os.umask(0o077)
        try:
            sandbox = await trial.started()
        finally:
            os.umask(before)
        program = """
            import os
            read, write = os.pipe()
            if os.fork() == 0:
                os.setgid(1000)
                os.setuid(1000)
                os.write(write, f"{sorted(os.listdir('/'))[0]} {os.path.exists('/run/outlive/ctl.sock')}".encode())
                os._exit(0)
            print(os.read(read, 100).decode())
        """
        said = await trial.ask(sandbox, "if 1:" + program)
        assert said == ".outlive False", "and the sockets of the host are the guest's alone"

    async def test_ten_at_once_do_not_disturb_each_other(self, trial: Trial) -> None:
        sandboxes: list[Sandbox] = []

        async def live(number: int) -> None:
            sandbox = await trial.started()
            sandboxes.append(sandbox)
            assert await trial.ask(sandbox, f"print({number})") == str(number)
            if number % 2:
                await trial.sandboxes.destroy(sandbox)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(live, number)
        assert len(await trial.sandboxes.find_all()) == 5

    async def test_a_host_without_runsc_is_refused_and_nothing_weaker_is_used(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(UnavailableError) as raised:
            open_gvisor_sandboxes(tmp_path / "node", "outlive-test/none")
        assert raised.value.code == "sandbox.no_runsc"

    async def test_a_path_that_a_mount_would_misread_is_refused(self, trial: Trial, tmp_path: Path) -> None:
        with pytest.raises(InvalidError):
            open_gvisor_sandboxes(tmp_path / "a,b", "outlive-test/none")
        for name in ("", "/", "a/../b", "/a"):
            with pytest.raises(InvalidError):
                open_gvisor_sandboxes(tmp_path / "node", name)
        strange = tmp_path / "base:upper"
        shutil.copytree(trial.base, strange)
        with pytest.raises(InvalidError):
            await trial.sandboxes.prepare(trial.plan()._replace(layers=(strange,)))
        with pytest.raises(UnavailableError):
            await trial.sandboxes.prepare(trial.plan()._replace(layers=(tmp_path / "none",)))
