"""What every kind of sandbox promises: subclass `SandboxesContract`, give it `open_sandboxes` and its two methods.

`open_sandboxes` opens the same place each time, as a node that was started again would. `check_nothing_left` looks at
the host when all sandboxes of a test were destroyed; `dies` waits until one is dead.
"""

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from outlive.base import BrokenError, ConflictError, new_machine_id
from outlive.machine.sandbox import Sandbox, Sandboxes, SandboxPlan
from outlive.machine.spec import Limits
from outlive.testing.standin import RUNTIME, listening, make_base, python_argv, standin_argv

SMALL = Limits(memory_mib=256, cpus=1.5, threads=2_000, disk_mib=64)


class Trial:
    """Sandboxes with a stand-in for the guest in each."""

    def __init__(self, sandboxes: Sandboxes, base: Path) -> None:
        self.sandboxes = sandboxes
        self.base = base

    def plan(self, *, limits: Limits = SMALL, is_read_only: bool = False, program: str | None = None) -> SandboxPlan:
        return SandboxPlan(
            machine=new_machine_id(),
            generation=1,
            limits=limits,
            layers=(self.base,),
            runtime=RUNTIME,
            argv=standin_argv() if program is None else python_argv(program),
            hostname="trial",
            is_read_only=is_read_only,
        )

    async def started(self, plan: SandboxPlan | None = None) -> Sandbox:
        sandbox = await self.sandboxes.prepare(plan or self.plan())
        await self.sandboxes.start(sandbox)
        return sandbox

    async def ask(self, sandbox: Sandbox, program: str) -> str:
        """Run it inside; what it printed."""
        with listening(sandbox) as standin:
            return (await standin.ask(program)).strip()

    async def hush(self, sandbox: Sandbox) -> None:
        with listening(sandbox) as standin:
            await standin.hush()

    async def saved(self, sandbox: Sandbox) -> None:
        """Its memory is at `image_path`; it goes on."""
        await self.hush(sandbox)
        await self.sandboxes.pause(sandbox)
        await self.sandboxes.save_memory(sandbox)
        await self.sandboxes.resume(sandbox)

    async def prepared_from(self, saved: Sandbox) -> Sandbox:
        """Another one, with the memory and the filesystem of the first."""
        sandbox = await self.sandboxes.prepare(self.plan())
        shutil.copytree(saved.image_path, sandbox.image_path, dirs_exist_ok=True)
        shutil.copytree(saved.upper_path, sandbox.upper_path, dirs_exist_ok=True, symlinks=True)
        return sandbox


class SandboxesContract:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def open_sandboxes(self) -> Callable[[], Sandboxes]:
        raise NotImplementedError

    @pytest.fixture
    async def trial(self, open_sandboxes: Callable[[], Sandboxes], tmp_path: Path) -> AsyncIterator[Trial]:
        sandboxes = open_sandboxes()
        yield Trial(sandboxes, make_base(tmp_path / "base"))
        for sandbox in await sandboxes.find_all():
            await sandboxes.destroy(sandbox)
        self.check_nothing_left(tmp_path)

    def check_nothing_left(self, tmp_path: Path) -> None:
        raise NotImplementedError

    async def test_a_machine_runs_on_its_base_and_what_it_writes_stays_its_own(self, trial: Trial) -> None:
        sandbox = await trial.sandboxes.prepare(trial.plan())
        assert await trial.sandboxes.state(sandbox) == "prepared"
        sandbox.upper_path.mkdir()
        (sandbox.upper_path / "filled").write_text("before the start")
        await trial.sandboxes.start(sandbox)
        assert await trial.sandboxes.state(sandbox) == "running"
        program = """
            import os
            print(os.getpid(), os.getuid(), os.uname().nodename, open("/etc/base").read(), open("/filled").read())
            open("/etc/base", "w").write("mine")
            print(open("/etc/base").read())
        """
        answer = await trial.ask(sandbox, "if 1:" + program)
        assert answer.split("\n") == ["1 0 trial of the base", " before the start", "mine"]
        assert (trial.base / "etc" / "base").read_text() == "of the base\n"
        assert sorted(path.name for path in trial.base.iterdir())[0] == "dev", "nothing is made in the base"
        await trial.sandboxes.destroy(sandbox)
        assert await trial.sandboxes.find_all() == []
        assert not sandbox.path.exists()

    async def test_every_call_may_be_repeated(self, trial: Trial) -> None:
        plan, sandboxes = trial.plan(), trial.sandboxes
        sandbox = await sandboxes.prepare(plan)
        sandbox.upper_path.mkdir()
        (sandbox.upper_path / "half of it").touch()
        assert await sandboxes.prepare(plan) == sandbox
        assert not sandbox.upper_path.exists(), "what was filled in half is not found again"
        await sandboxes.start(sandbox)
        await trial.ask(sandbox, "mark = 5")
        await sandboxes.start(sandbox)
        with pytest.raises(ConflictError) as raised:
            await sandboxes.prepare(plan)
        assert raised.value.code == "sandbox.exists"
        assert await trial.ask(sandbox, "print(mark)") == "5", "it is the same one, not started again"
        await trial.hush(sandbox)
        for call in (sandboxes.pause, sandboxes.save_memory, sandboxes.resume, sandboxes.freeze, sandboxes.thaw):
            await call(sandbox)
            await call(sandbox)
            if call == sandboxes.save_memory:
                assert await sandboxes.state(sandbox) == "paused"
        assert await trial.ask(sandbox, "print(mark)") == "5"
        await sandboxes.destroy(sandbox)
        await sandboxes.destroy(sandbox)

    async def test_one_that_was_started_by_another_node_process_is_found_and_used(
        self, trial: Trial, open_sandboxes: Callable[[], Sandboxes]
    ) -> None:
        sandbox, prepared = await trial.started(), await trial.sandboxes.prepare(trial.plan())
        again = open_sandboxes()
        assert set(await again.find_all()) == {sandbox, prepared}
        assert await again.state(sandbox) == "running"
        assert await again.state(prepared) == "prepared"
        await again.freeze(sandbox)
        assert await trial.sandboxes.state(sandbox) == "frozen"
        await again.thaw(sandbox)
        assert await trial.ask(sandbox, "print('here')") == "here"
        await again.destroy(sandbox)
        assert await trial.sandboxes.state(sandbox) == "dead"

    async def test_a_paused_one_does_nothing_until_it_is_resumed(self, trial: Trial) -> None:
        sandbox = await trial.started()
        await trial.ask(sandbox, _COUNTING)
        await trial.sandboxes.pause(sandbox)
        assert await trial.sandboxes.state(sandbox) == "paused"
        count = (sandbox.upper_path / "count").read_bytes()
        await trial.sandboxes.pause(sandbox)
        assert (sandbox.upper_path / "count").read_bytes() == count
        await trial.sandboxes.resume(sandbox)
        assert int(await trial.ask(sandbox, "print(counted())")) >= len(count)

    async def test_a_frozen_one_takes_no_cpu_and_goes_on_when_it_is_thawed(self, trial: Trial) -> None:
        sandbox = await trial.started()
        await trial.ask(sandbox, _COUNTING)
        await trial.sandboxes.freeze(sandbox)
        assert await trial.sandboxes.state(sandbox) == "frozen"
        before = await trial.sandboxes.usage(sandbox)
        other = await trial.started()  # takes its time, and CPU
        assert (await trial.sandboxes.usage(sandbox)).cpu_s == before.cpu_s
        with pytest.raises(ConflictError) as raised:
            await trial.sandboxes.pause(sandbox)
        assert raised.value.code == "sandbox.frozen"
        await trial.sandboxes.thaw(sandbox)
        assert await trial.sandboxes.state(sandbox) == "running"
        assert int(await trial.ask(sandbox, "print(counted())")) > 0
        await trial.sandboxes.destroy(other)

    async def test_frozen_and_paused_ones_are_destroyed_like_any_other(self, trial: Trial) -> None:
        frozen, paused = await trial.started(), await trial.started()
        await trial.sandboxes.freeze(frozen)
        await trial.sandboxes.pause(paused)
        for sandbox in (frozen, paused):
            await trial.sandboxes.destroy(sandbox)
            assert await trial.sandboxes.state(sandbox) == "dead"
        assert await trial.sandboxes.find_all() == []

    async def test_memory_is_restored_elsewhere_while_the_first_goes_on(self, trial: Trial) -> None:
        first = await trial.started()
        await trial.ask(first, "secret = 'in memory'; notes = open('/workspace/notes', 'w+'); notes.write('half a li')")
        await trial.saved(first)
        second, third = await trial.prepared_from(first), await trial.prepared_from(first)
        for sandbox in (second, third):
            await trial.sandboxes.restore(sandbox)
            assert await trial.sandboxes.state(sandbox) == "running"
        for sandbox, name in ((first, "one"), (second, "two"), (third, "three")):
            await trial.ask(sandbox, f"secret += ' {name}'; notes.write('ne {name}'); notes.flush()")
            said = await trial.ask(sandbox, "print(secret)")
            assert said == f"in memory {name}"
            assert (sandbox.upper_path / "workspace" / "notes").read_text() == f"half a line {name}"

    async def test_memory_that_cannot_be_saved_is_said_and_the_sandbox_lives_on_paused(self, trial: Trial) -> None:
        sandbox = await trial.started()
        with pytest.raises(ConflictError) as conflict:
            await trial.sandboxes.save_memory(sandbox)
        assert conflict.value.code == "sandbox.not_paused"
        with listening(sandbox) as standin:
            await standin.ask("import socket; line = socket.socket(socket.AF_UNIX)")
            await standin.ask("line.connect('/run/outlive/ctl.sock')")  # and stays open
            await trial.sandboxes.pause(sandbox)
            with pytest.raises(BrokenError) as raised:
                await trial.sandboxes.save_memory(sandbox)
        assert raised.value.code == "sandbox.memory"
        assert await trial.sandboxes.state(sandbox) == "paused"
        assert list(sandbox.image_path.iterdir()) == []
        await trial.sandboxes.resume(sandbox)
        await trial.ask(sandbox, "line.close()")
        await trial.saved(sandbox)
        assert await trial.ask(sandbox, "print('well')") == "well"

    async def test_damaged_memory_is_said_and_the_machine_can_be_booted_instead(self, trial: Trial) -> None:
        first = await trial.started()
        await trial.ask(first, "open('/kept', 'w').write('on disk')")
        await trial.saved(first)
        second = await trial.prepared_from(first)
        for file in second.image_path.iterdir():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        with pytest.raises(BrokenError) as raised:
            await trial.sandboxes.restore(second)
        assert raised.value.code == "sandbox.memory"
        assert await trial.sandboxes.state(second) == "prepared"
        await trial.sandboxes.start(second)
        assert await trial.ask(second, "print(open('/kept').read())") == "on disk"
        empty = await trial.sandboxes.prepare(trial.plan())
        with pytest.raises(BrokenError) as raised:
            await trial.sandboxes.restore(empty)
        assert raised.value.code == "sandbox.memory"

    async def test_one_whose_first_program_is_missing_or_ends_is_not_running(self, trial: Trial) -> None:
        missing = await trial.sandboxes.prepare(trial.plan()._replace(argv=("/no/such/program",)))
        with pytest.raises(BrokenError) as raised:
            await trial.sandboxes.start(missing)
        assert raised.value.code == "sandbox.not_started"
        assert "no such file" in raised.value.message
        ended = await trial.started()
        with listening(ended) as standin:
            assert await standin.ask("import os; os._exit(3)") == ""
        await self.dies(trial, ended)
        with pytest.raises(ConflictError) as conflict:
            await trial.sandboxes.start(ended)
        assert conflict.value.code == "sandbox.dead"

    async def test_a_read_only_machine_writes_nowhere_but_in_memory(self, trial: Trial) -> None:
        sandbox = await trial.started(trial.plan(is_read_only=True))
        for place in ("/x", "/etc/base", "/workspace/x"):
            assert "Read-only file system" in await trial.ask(sandbox, f"open({place!r}, 'w')")
        assert await trial.ask(sandbox, "open('/tmp/x', 'w').write('y'); print(open('/tmp/x').read())") == "y"

    async def test_places_in_memory_are_for_all_and_bounded_and_what_is_the_hosts_is_read_only(
        self, trial: Trial
    ) -> None:
        sandbox = await trial.started()
        program = """
            import os, stat
            for place in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
                size = os.statvfs(place)
                print(place, oct(stat.S_IMODE(os.stat(place).st_mode)), size.f_blocks * size.f_frsize >> 20)
            for place in ("/run/outlive/x", "/.outlive/x", "/sys/x"):
                try:
                    open(place, "w")
                except OSError as error:
                    print(place, error.errno in (1, 13, 30))
        """
        assert (await trial.ask(sandbox, "if 1:" + program)).split("\n") == [
            "/tmp 0o1777 128",  # noqa: S108
            "/var/tmp 0o1777 16",  # noqa: S108
            "/dev/shm 0o1777 32",  # noqa: S108
            "/run 0o755 16",
            "/run/outlive/x True",
            "/.outlive/x True",
            "/sys/x True",
        ]
        assert list(sandbox.host_path.iterdir()) == []

    async def test_what_is_used_is_measured_from_outside(self, trial: Trial) -> None:
        sandbox = await trial.started()
        before = await trial.sandboxes.usage(sandbox)
        await trial.ask(sandbox, "kept = bytearray(b'x') * (64 << 20)")
        await trial.ask(sandbox, "open('/workspace/file', 'wb').write(bytes(b'x') * (16 << 20))")
        after = await trial.sandboxes.usage(sandbox)
        assert after.memory_bytes - before.memory_bytes > 60 << 20
        assert after.disk_bytes - before.disk_bytes >= 16 << 20
        assert after.cpu_s > before.cpu_s > 0
        assert after.threads > 0

    async def dies(self, trial: Trial, sandbox: Sandbox) -> None:
        """Wait until it is dead: bounded by the test's own timeout."""
        raise NotImplementedError


_COUNTING = """
import threading, time
def count():
    with open("/count", "wb", buffering=0) as file:
        while True:
            file.write(b".")
            time.sleep(0.001)
def counted():
    return open("/count", "rb").seek(0, 2)
threading.Thread(target=count, daemon=True).start()
while not counted():
    time.sleep(0.001)
"""
