"""Terminals in a guest: bytes with offsets, no owner, alive whoever comes and goes."""

import os
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eventually import eventually
from outlive.base import ConflictError, ExhaustedError, InvalidError, NotFoundError
from outlive.machine.guest_link import AttachedTerminal, Guest, GuestDoor

pytestmark = pytest.mark.anyio

TERMINAL = "term_1"
BASH = ("bash", "--norc", "--noprofile")


async def until(attached: AttachedTerminal, wanted: bytes) -> bytes:
    """What comes up to and with `wanted`."""
    seen = b""
    with anyio.move_on_after(60):
        while wanted not in seen:
            data = await attached.receive()
            assert data is not None, f"it ended after {seen!r}"
            seen += data
    assert wanted in seen, f"nothing came behind {seen!r}"
    return seen


async def test_a_terminal_is_a_terminal_of_the_agent(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=BASH, columns=91, rows=33, env={"PS1": "$ "})
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        await attached.send(b"tty; stty size; id -u; echo $TERM; ps -o tty= $$ >/dev/null && echo en''d\n")
        said = await until(attached, b"\r\nend\r\n")
    assert b"/dev/pts/" in said
    assert b"33 91\r\n1000\r\nxterm-256color\r\n" in said


async def test_opening_it_again_finds_it(guest: Guest) -> None:
    first = await guest.terminals.open(TERMINAL, argv=("sleep", "100"))
    again = await guest.terminals.open(TERMINAL, argv=("echo", "never"))
    assert again.pid == first.pid
    assert [known.terminal for known in await guest.terminals.list()] == [TERMINAL]


async def test_attaching_from_an_offset_loses_no_byte(guest: Guest, door: GuestDoor) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh",), env={"PS1": ""})
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        await attached.send(b"stty -echo; X=ke''pt; echo rea''dy\n")
        first = await until(attached, b"ready\r\n")
        assert attached.offset == len(first)
        typed = attached.input_at + len(b"stty -echo; X=ke''pt; echo rea''dy\n")
    guest.close()
    guest = await door.guest(10)
    async with guest.terminals.attach(TERMINAL, offset=3, with_input=True) as attached:
        assert (attached.offset, attached.is_gap, attached.input_at) == (3, False, typed)
        await attached.send(b"echo $X\n")
        assert (await until(attached, b"kept\r\n")).startswith(first[3:])
        assert attached.offset > len(first)


async def test_the_ring_says_when_it_no_longer_has_what_is_asked_for(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", "head -c 3000000 /dev/zero; echo end; sleep 100"))
    async with guest.terminals.attach(TERMINAL) as attached:
        facts = (await guest.terminals.list())[0]
        while facts.end < 3_000_000:
            facts = (await guest.terminals.list())[0]
        assert attached.offset <= facts.end
    assert facts.end - facts.start == 1024 * 1024
    async with guest.terminals.attach(TERMINAL, offset=0) as attached:
        assert attached.is_gap
        assert attached.offset == facts.start or attached.offset > facts.start


async def test_one_who_is_too_slow_is_cut_off_and_told_so(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=("cat", "/dev/zero"))
    async with guest.terminals.attach(TERMINAL, offset=0) as attached:
        await _printed(guest, 4 * 1024 * 1024)
        with pytest.raises(ExhaustedError, match="attach again"):
            await until(attached, b"what never comes")
    await guest.terminals.close(TERMINAL)


async def _printed(guest: Guest, size: int) -> None:
    with anyio.fail_after(20):
        while (await guest.terminals.list())[0].end < size:
            await anyio.lowlevel.checkpoint()


async def test_several_see_the_same_bytes(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=BASH, env={"PS1": ""})
    async with (
        guest.terminals.attach(TERMINAL, offset=0, with_input=True) as one,
        guest.terminals.attach(TERMINAL, offset=0) as other,
    ):
        await one.send(b"echo hel''lo\n")
        assert await until(one, b"hello\r\n") == await until(other, b"hello\r\n")


async def test_the_exit_and_the_last_bytes_stay(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", "echo bye; exit 7"))
    assert (await guest.terminals.wait(TERMINAL, 5)).code == 7
    async with guest.terminals.attach(TERMINAL, offset=0) as attached:
        assert await attached.receive() == b"bye\r\n"
        assert await attached.receive() is None
    with pytest.raises(ConflictError):
        await guest.terminals.signal(TERMINAL, signal.SIGINT)
    await guest.terminals.close(TERMINAL)
    await guest.terminals.close(TERMINAL)
    with pytest.raises(NotFoundError):
        await guest.terminals.wait(TERMINAL, 5)


async def test_resize_and_interrupt_reach_what_runs_in_the_foreground(guest: Guest, workspace: Path) -> None:
    await guest.terminals.open(TERMINAL, argv=BASH, env={"PS1": ""})
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        trap, size = b"trap 'stty size' WINCH; echo rea''dy\n", b"stty size\n"
        await attached.send(trap)
        await until(attached, b"ready\r\n")
        await eventually(lambda: _has_read(guest, len(trap)), 20)  # what is typed before may be thrown away, here too
        await guest.terminals.resize(TERMINAL, 120, 50)
        await attached.send(size)
        await until(attached, b"50 120\r\n")
        await eventually(lambda: _has_read(guest, len(trap + size)), 20)
        await attached.send(b"(echo start''ed; exec sleep 1000); echo afterwa''rds\n")
        await until(attached, b"started\r\n")
        await attached.send(b"\x03")
        await until(attached, b"^C")
        await eventually(lambda: _is_shell_in_front(guest), 20)  # what is typed before that may be thrown away
        await attached.send(b"echo ali''ve\n")
        await until(attached, b"alive\r\n")


async def _is_shell_in_front(guest: Guest) -> bool:
    return (await guest.terminals.list())[0].foreground is None


async def test_whether_a_program_waits_and_has_read_all_keys_is_said(guest: Guest) -> None:
    pid = (await guest.terminals.open(TERMINAL, argv=BASH, env={"PS1": "$ "})).pid
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        seen = await until(attached, b"$ ")
        await eventually(lambda: _has_read(guest, 0), 20)
        os.kill(pid, signal.SIGSTOP)
        await attached.send(b"half")
        await eventually(lambda: _has_unread(guest, 4), 20)
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: _has_read(guest, 4), 20)
        shown = (await guest.terminals.line(TERMINAL)).end
        seen += await until(attached, b"half")
        assert len(seen) <= shown  # what it said to them is counted
        await attached.send(b"\x15exit\n")
        await guest.terminals.wait(TERMINAL, 20)
        over = await guest.terminals.line(TERMINAL)
        assert (over.unread, over.is_waiting) == (None, False)


async def _has_read(guest: Guest, size: int) -> bool:
    line = await guest.terminals.line(TERMINAL)
    return (line.unread, line.is_waiting, line.input) == (0, True, size)


async def _has_unread(guest: Guest, size: int) -> bool:
    line = await guest.terminals.line(TERMINAL)
    return (line.unread, line.is_waiting, line.input) == (size, False, size)


async def test_closing_ends_the_program(guest: Guest) -> None:
    pid = (await guest.terminals.open(TERMINAL, argv=("sleep", "1000"))).pid
    os.kill(pid, 0)
    async with guest.terminals.attach(TERMINAL) as attached:
        await guest.terminals.close(TERMINAL)
        with anyio.fail_after(10):
            assert await attached.receive() is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_that_is_not_there_is_refused(guest: Guest) -> None:
    for argv, cwd, code in (
        (("/no/such/program",), None, "machine.no_such_program"),
        (("/etc/passwd",), None, "machine.not_started"),
        (None, "/no/such/place", "machine.no_directory"),
    ):
        with pytest.raises(InvalidError) as refused:
            await guest.terminals.open(TERMINAL, argv=argv, cwd=cwd)
        assert refused.value.code == code
    assert await guest.terminals.list() == []
