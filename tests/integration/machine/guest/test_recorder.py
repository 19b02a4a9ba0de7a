"""A terminal with a recorder loses no byte, and what is typed by offset is typed once."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eventually import eventually
from integration.machine.guest.test_terminals import until
from outlive.base import ConflictError
from outlive.machine.guest_link import Guest, GuestDoor
from outlive.machine.guest_link.terminals import ACKNOWLEDGE_AT

pytestmark = pytest.mark.anyio

TERMINAL = "term_1"
COMES_S = 30.0
RING = 1024 * 1024
COUNTED = "".join(f"{number}\r\n" for number in range(1, 700_001)).encode()  # 5 MB


async def printed(guest: Guest) -> int:
    return (await guest.terminals.list())[0].end


async def _has_printed(guest: Guest, size: int) -> bool:
    return await printed(guest) >= size


async def record(guest: Guest, offset: int, size: int) -> bytes:
    """Be the recorder for at least `size` bytes, or to the end."""
    kept = b""
    with anyio.fail_after(COMES_S):
        async with guest.terminals.attach(TERMINAL, offset=offset, is_recorder=True) as attached:
            assert attached.offset == offset
            while len(kept) < size and (data := await attached.receive()) is not None:
                kept += data
                attached.ack(attached.offset)
    return kept


async def test_a_recorder_that_goes_away_and_comes_back_misses_no_byte(guest: Guest, door: GuestDoor) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", "read go; seq 700000"))
    async with guest.terminals.attach(TERMINAL, offset=0, is_recorder=True, with_input=True) as attached:
        await attached.send(b"\n")
        kept = await until(attached, b"\n")
    kept += await record(guest, len(kept), 1_000_000)
    at = len(kept)
    await eventually(lambda: _is_full(guest, at), COMES_S)
    guest.close()
    guest = await door.guest(COMES_S)
    kept += await record(guest, at, 2_000_000)
    kept += await record(guest, len(kept), 10 * len(COUNTED))
    assert kept == b"\r\n" + COUNTED
    assert (await guest.terminals.wait(TERMINAL, COMES_S)).code == 0


async def _is_full(guest: Guest, acknowledged: int) -> bool:
    """The program waits: what it printed and nobody acknowledged fills the ring."""
    end = await printed(guest)
    assert end - acknowledged <= RING
    return end - acknowledged > RING - 2 * ACKNOWLEDGE_AT


async def test_the_end_of_a_program_waits_for_its_recorder(guest: Guest) -> None:
    argv = ("sh", "-c", "read go; head -c 1048576 /dev/zero; echo end; exit 3")
    pid = (await guest.terminals.open(TERMINAL, argv=argv)).pid
    async with guest.terminals.attach(TERMINAL, offset=0, is_recorder=True, with_input=True) as attached:
        await attached.send(b"\n")
        await eventually(lambda: _has_printed(guest, RING), COMES_S)
        await eventually(lambda: _is_gone(guest, pid), COMES_S)
        assert (await guest.terminals.list())[0].exit is None
    kept = await record(guest, 0, 10 * RING)
    assert kept == b"\r\n" + bytes(RING) + b"end\r\n"
    assert (await guest.terminals.wait(TERMINAL, COMES_S)).code == 3


async def test_the_newest_recorder_wins_and_the_other_is_told(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=("cat",))
    async with (
        guest.terminals.attach(TERMINAL, offset=0, is_recorder=True) as older,
        guest.terminals.attach(TERMINAL, offset=0, is_recorder=True, with_input=True) as newer,
    ):
        await newer.send(b"hello\n")
        await until(newer, b"hello\r\nhello\r\n")
        with pytest.raises(ConflictError, match="Another recorder"):
            await until(older, b"what never comes")


async def test_closing_a_terminal_whose_recorder_never_comes_back_ends_it(guest: Guest) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", "read go; exec cat /dev/zero"))  # not before it is recorded
    async with guest.terminals.attach(TERMINAL, offset=0, is_recorder=True, with_input=True) as attached:
        await attached.send(b"\n")
        await until(attached, b"\n")
    await eventually(lambda: _is_full(guest, 0), COMES_S)
    pid = (await guest.terminals.list())[0].pid
    await guest.terminals.close(TERMINAL)
    await eventually(lambda: _is_gone(guest, pid), COMES_S)


async def _is_gone(guest: Guest, pid: int) -> bool:
    return all(process.pid != pid for process in await guest.processes())


async def test_what_is_typed_by_offset_is_typed_once(guest: Guest, door: GuestDoor) -> None:
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", "stty -echo; echo ready; cat"))
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        await until(attached, b"ready\r\n")
        await attached.type(b"one\n", at=0)
        await attached.type(b"one\ntwo\n", at=0)
        await until(attached, b"two\r\n")
        with pytest.raises(ConflictError, match="8 bytes") as refused:
            await attached.type(b"four\n", at=9)
        assert refused.value.facts["input"] == 8
        offset = attached.offset
    guest.close()
    guest = await door.guest(COMES_S)
    async with guest.terminals.attach(TERMINAL, offset=offset, with_input=True) as attached:
        assert attached.input_at == attached.input_end == 8
        await attached.type(b"one\ntwo\nthree\n", at=0)
        assert await until(attached, b"three\r\n") == b"three\r\n"


async def test_input_that_a_program_does_not_read_can_be_given_up(guest: Guest, workspace: Path) -> None:
    program = "stty raw -echo; echo ready; until [ -e go ]; do sleep 0.05; done; exec cat"
    await guest.terminals.open(TERMINAL, argv=("sh", "-c", program))
    async with guest.terminals.attach(TERMINAL, offset=0, with_input=True) as attached:
        await until(attached, b"ready")
        with anyio.move_on_after(1.0) as typing:
            await attached.type(b"x" * RING, at=0)
        assert typing.cancelled_caught, "what nobody reads must hold up who types"
        sent = attached.input_end
        assert sent < RING
        dropped = await attached.drop_input(upto=RING)
        assert 0 < dropped.at < sent
        assert dropped.input == RING == attached.input_end
        (workspace / "go").touch()
        await attached.type(b"end", at=RING)
        said = (await until(attached, b"end")).lstrip(b"\r\n")
        assert said == b"x" * dropped.at + b"end", "what was in the PTY by then, and nothing of what was given up"
