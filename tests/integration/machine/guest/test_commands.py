"""Commands in a guest: run once, kept until they are safe, never in each other's way."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from eventually import eventually
from outlive.base import ConflictError, EffectId, ExhaustedError, InvalidError, new_effect_id
from outlive.machine.command import Command
from outlive.machine.guest_link import Guest, GuestDoor

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


def line(text: str, **rest: object) -> Command:
    return Command(new_effect_id(), text, **rest)  # type: ignore[arg-type]


async def test_a_command_gives_its_output_apart_and_its_exit_code(guest: Guest) -> None:
    done = await guest.run(line("echo out; echo err >&2; exit 3"))
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert (done.exit.reason, done.exit.code, done.exit.signal) == ("exited", 3, None)


async def test_a_known_effect_is_found_and_never_run_again(guest: Guest, workspace: Path) -> None:
    command = line("echo once >> counted; cat counted")
    first = await guest.run(command)
    async with guest.start(command) as again:
        assert not again.is_new
        assert [chunk.data async for chunk in again.chunks()] == [b"once\n"]
        assert await again.exit(60) == first.exit
    assert (workspace / "counted").read_text() == "once\n"


async def test_arguments_are_passed_as_they_are(guest: Guest) -> None:
    argv = ("printf", "%s|", "a b", "$HOME", "'", "ü\n", "x" * 100_000)
    done = await guest.run(Command(new_effect_id(), argv))
    assert done.stdout.decode() == "".join(f"{word}|" for word in argv[2:])


async def test_a_command_runs_as_the_agent_with_a_small_environment(guest: Guest) -> None:
    os.environ["OUTLIVE_TEST_SECRET"] = "not for machines"
    done = await guest.run(line("id -u; id -g; id -G; env; grep -h ^CapEff /proc/self/status", env={"MINE": "1"}))
    del os.environ["OUTLIVE_TEST_SECRET"]
    said = done.stdout.decode().splitlines()
    assert said[:3] == ["1000", "1000", "1000"]
    assert "CapEff:\t0000000000000000" in said
    names = {word.partition("=")[0] for word in said if "=" in word}
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
    shells_own = {"PWD", "SHLVL", "_", "OLDPWD"}
    small = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "FROM_WELCOME", "MINE"}
    assert names - shells_own == small | proxies


async def test_the_guest_stays_root_after_a_command_as_the_agent(guest: Guest) -> None:
    await guest.run(line("true"))
    assert (await guest.run(line("id -u", user="root"))).stdout == b"0\n"


async def test_what_cannot_be_started_is_refused_and_holds_no_effect(guest: Guest) -> None:
    effect = new_effect_id()
    for command, code in (
        (Command(effect, ("/no/such/program",)), "machine.no_such_program"),
        (Command(effect, ("/etc/passwd",)), "machine.not_started"),
        (Command(effect, "true", cwd="/no/such/place"), "machine.no_directory"),
        (Command(effect, "true", user="nobody-here"), "machine.no_such_user"),
        (Command(effect, "a\0b"), "machine.bad_request"),
    ):
        with pytest.raises(InvalidError) as refused:
            await guest.run(command)
        assert refused.value.code == code
    assert await guest.find(effect) is None


async def test_stdin_reaches_the_command_whole(guest: Guest) -> None:
    sent = os.urandom(MIB)
    done = await guest.run(Command(new_effect_id(), "sha256sum; cat", has_stdin=True), stdin=sent)
    assert done.exit.code == 0
    echoed = await guest.run(Command(new_effect_id(), "cat", has_stdin=True), stdin=sent)
    assert echoed.stdout == sent


async def test_a_command_that_does_not_want_its_stdin_ends_all_the_same(guest: Guest) -> None:
    done = await guest.run(Command(new_effect_id(), "exec <&-; echo done", has_stdin=True), stdin=bytes(MIB))
    assert done.stdout == b"done\n"


async def test_a_timeout_ends_the_whole_group_also_those_who_ignore_it(guest: Guest, workspace: Path) -> None:
    text = "trap '' TERM; (trap '' TERM; echo $BASHPID > child; sleep 1000) & echo $$ > parent; wait"
    done = await guest.run(line(text, timeout_s=3))
    assert (done.exit.reason, done.exit.signal) == ("timeout", signal.SIGKILL)
    child = int((workspace / "child").read_text())
    await eventually(lambda: not _lives(child), within_s=60)


async def test_time_that_the_machine_stood_still_is_not_counted_as_running(guest: Guest) -> None:
    async with guest.start(line("sleep 0.4; echo alive", timeout_s=3600)) as running:
        await guest.slept(3600 * 24)
        assert (await running.exit(60)).reason == "exited"


async def test_a_signal_reaches_the_group(guest: Guest) -> None:
    async with guest.start(line("trap 'echo got it; exit 5' USR1; echo ready; sleep 100 & wait")) as running:
        async for chunk in running.chunks():
            if chunk.data == b"ready\n":
                await guest.signal(running.effect, signal.SIGUSR1)
        assert (await running.exit(60)).code is not None or (await running.exit(60)).signal


async def test_a_child_in_the_background_neither_delays_the_exit_nor_dies(guest: Guest, workspace: Path) -> None:
    with anyio.fail_after(60):
        done = await guest.run(line("sleep 1000 & echo $! > child; echo started"))
    assert done.stdout == b"started\n"
    child = int((workspace / "child").read_text())
    assert _lives(child)
    os.kill(child, signal.SIGKILL)


async def test_what_a_child_prints_later_is_dropped_and_does_not_stop_it(guest: Guest, workspace: Path) -> None:
    text = "(read -r; head -c 3000000 /dev/zero; echo done > finished) < gate & echo started"
    os.mkfifo(workspace / "gate", 0o666)
    (workspace / "gate").chmod(0o666)
    done = await guest.run(line(text))
    gate = os.open(workspace / "gate", os.O_RDWR | os.O_NONBLOCK)
    os.write(gate, b"go\n")
    await eventually((workspace / "finished").exists, within_s=60)
    os.close(gate)
    assert done.stdout == b"started\n"


async def test_a_program_waits_while_nobody_makes_its_output_safe(guest: Guest, workspace: Path) -> None:
    command = line(f"head -c {12 * MIB} /dev/zero; touch passed")
    async with guest.start(command) as running:
        seen = 0
        async for chunk in running.chunks():
            seen += len(chunk.data)
            if seen >= 4 * MIB:
                break
        held = await guest.find(running.effect)
        assert held is not None
        assert held.exit is None
        assert held.stdout_size < 5 * MIB
        assert not (workspace / "passed").exists()
    done = await guest.run(command)
    assert len(done.stdout) == 12 * MIB
    assert (workspace / "passed").exists()


async def test_output_beyond_the_limit_is_cut_and_counted(guest: Guest) -> None:
    done = await guest.run(line(f"head -c {3 * MIB} /dev/zero; echo end >&2", output_limit=MIB))
    assert len(done.stdout) + len(done.stderr) == MIB
    assert done.exit.stdout_cut + done.exit.stderr_cut == 2 * MIB + 4
    assert done.exit.code == 0


async def test_following_again_from_an_offset_loses_no_byte_and_repeats_none(door: GuestDoor, guest: Guest) -> None:
    effect = EffectId("any-effect_1")
    text = f"head -c {2 * MIB} /dev/urandom | tee kept; sleep 1000"
    first = b""
    async with guest.start(Command(effect, text)) as running:
        async for chunk in running.chunks():
            first += chunk.data
            if len(first) > MIB // 3:
                break
        await running.acknowledge()
    guest.close()
    again = await door.guest(10)
    assert again is not guest
    assert (again.hello.running, again.hello.boot) == (1, guest.hello.boot)
    async with again.attach(effect, stdout_from=len(first)) as running:
        assert running.offsets["stdout"] == len(first)
        async for chunk in running.chunks():
            assert chunk.offset == len(first)
            first += chunk.data
            if len(first) == 2 * MIB:
                break
    kept = await again.files.read_bytes("kept", most=4 * MIB)
    assert first == kept
    await again.signal(effect, signal.SIGKILL)


async def test_one_slow_reader_stalls_nobody_else(guest: Guest) -> None:
    async with guest.start(line("cat /dev/zero", output_limit=2**40)) as slow:
        with anyio.fail_after(60):
            for number in range(20):
                assert (await guest.run(line(f"echo {number}"))).stdout == f"{number}\n".encode()
        await guest.signal(slow.effect, signal.SIGKILL)


async def test_an_effect_is_held_until_it_is_forgotten(guest: Guest) -> None:
    first, second = line("true"), line("sleep 100")
    await guest.run(first)
    async with guest.start(second) as running:
        assert {held.effect: held.exit is None for held in await guest.effects()} == {
            first.effect: False,
            second.effect: True,
        }
        with pytest.raises(ConflictError):
            await guest.forget(second.effect)
        await guest.forget(first.effect)
        await guest.forget(first.effect)
        assert await guest.find(first.effect) is None
        await guest.signal(second.effect, signal.SIGKILL)
        assert (await running.exit(60)).signal == signal.SIGKILL
    with pytest.raises(ConflictError):
        await guest.signal(second.effect, signal.SIGKILL)


async def test_the_whole_ledger_is_given_in_pages(guest: Guest) -> None:
    for first in range(0, 300, 100):
        async with anyio.create_task_group() as tasks:
            for number in range(first, first + 100):
                tasks.start_soon(guest.run, Command(EffectId(f"eff-{number:03}"), ("/bin/true",)))
    assert [held.effect for held in await guest.effects()] == [f"eff-{number:03}" for number in range(300)]


async def test_somebody_who_attaches_later_takes_over_from_who_was_there(guest: Guest) -> None:
    async with guest.start(line("echo one; sleep 1000")) as first:
        async with guest.attach(first.effect) as second:
            async for chunk in second.chunks():
                assert chunk.data == b"one\n"
                break
            with pytest.raises(ExhaustedError, match="Somebody else"):
                _ = [chunk async for chunk in first.chunks()]
        await guest.signal(first.effect, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second: it went while its file was read
        return False
    return state != "Z"
