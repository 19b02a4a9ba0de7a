"""The connection between a guest and its host: lost and found again, quiet before a checkpoint, never two at once."""

import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from descriptors import no_descriptors_left
from eventually import eventually
from integration.machine.guest.greeting import MACHINE, StartGuest, welcome
from integration.machine.guest.hostile import HELLO
from outlive.base import DeadlineError, UnavailableError, new_effect_id
from outlive.guest.wire import Kind, encode_words
from outlive.machine.command import Command
from outlive.machine.guest_link import SOCKET, Guest, GuestDoor, open_door
from outlive.processes.temporal_server import choose_port

pytestmark = pytest.mark.anyio


async def test_a_guest_says_who_it_was_and_learns_who_it_is(guest: Guest) -> None:
    assert (guest.hello.machine, guest.hello.generation, guest.hello.running) == ("", 0, 0)


async def test_a_restarted_host_finds_its_guest_again(sockets: Path, start_guest: StartGuest) -> None:
    async with open_door(sockets, welcome(4)) as door:
        start_guest()
        first = await door.guest(10)
        async with first.start(Command(new_effect_id(), "sleep 1000")) as running:
            effect = running.effect
    async with open_door(sockets, welcome(4)) as door:
        again = await door.guest(10)
        assert (again.hello.machine, again.hello.generation, again.hello.boot) == (MACHINE, 4, first.hello.boot)
        assert [held.effect for held in await again.effects()] == [effect]
        await again.signal(effect, signal.SIGKILL)


async def test_a_guest_does_not_go_back_to_a_generation_that_is_over(sockets: Path, start_guest: StartGuest) -> None:
    async with open_door(sockets, welcome(5)) as door:
        start_guest()
        await door.guest(10)
    async with open_door(sockets, welcome(4)) as door:
        with pytest.raises(UnavailableError):
            await door.guest(0.6)
    async with open_door(sockets, welcome(6)) as door:
        assert (await door.guest(10)).hello.generation == 5


async def test_a_fork_takes_on_its_own_identity(sockets: Path, start_guest: StartGuest) -> None:
    async with open_door(sockets, welcome(5)) as door:
        start_guest()
        await door.guest(10)
    twin = "mach_" + "2" * 32
    async with open_door(sockets, welcome(1, twin)) as door:
        assert (await door.guest(10)).hello.machine == MACHINE
    async with open_door(sockets, welcome(1, twin)) as door:
        assert (await door.guest(10)).hello.machine == twin


async def test_who_waits_for_a_guest_is_told_at_once_when_its_door_closes(door: GuestDoor) -> None:
    async def wait() -> None:
        with pytest.raises(UnavailableError, match="closed"):
            await door.guest(60)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            door.close()


async def test_everybody_who_waits_is_told_when_the_connection_breaks(door: GuestDoor, start_guest: StartGuest) -> None:
    process = start_guest()
    guest = await door.guest(10)
    told: list[str] = []

    async def wait_for_exit() -> None:
        async with guest.start(Command(new_effect_id(), "sleep 1000")) as running:
            started.set()
            try:
                await running.exit()
            except UnavailableError as error:
                told.append(error.code)

    async def read_output() -> None:
        async with guest.start(Command(new_effect_id(), "sleep 1000")) as running:
            try:
                _ = [chunk async for chunk in running.chunks()]
            except UnavailableError as error:
                told.append(error.code)

    started = anyio.Event()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_output)
            tasks.start_soon(wait_for_exit)
            await started.wait()
            process.kill()
    assert told == ["machine.guest_away"] * 2
    assert not guest.is_here
    with pytest.raises(UnavailableError):
        await guest.ping()


async def test_a_second_connection_is_turned_away_while_the_first_lives(
    door: GuestDoor, sockets: Path, guest: Guest
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(sockets / SOCKET))
        await anyio.wait_readable(other)
        assert other.recv(100) == b""
    await guest.ping()


async def test_the_socket_is_for_the_owner_alone(door: GuestDoor, sockets: Path) -> None:
    assert (sockets / SOCKET).stat().st_mode & 0o777 == 0o600
    assert os.listdir(sockets) == [SOCKET]


async def test_quiesced_the_guest_holds_no_connection_and_comes_back_when_the_door_opens(
    door: GuestDoor, sockets: Path, start_guest: StartGuest
) -> None:
    port = choose_port(0)
    process = start_guest(f"--relay-port={port}")
    guest = await door.guest(10)
    with egress(sockets) as relayed, socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"HELLO"
        async with guest.start(Command(new_effect_id(), "sleep 1000")) as running:
            await door.quiesce(10)
            assert client.recv(5) == b""
            assert unix_connections(process.pid, sockets) == 0
        with socket.create_connection(("127.0.0.1", port), timeout=5) as refused:
            assert refused.recv(5) == b""
        assert len(relayed) == 1
        door.open()
        guest = await door.guest(10)
        await guest.signal(running.effect, signal.SIGKILL)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"again")
            assert client.recv(5) == b"AGAIN"


def unix_connections(pid: int, sockets: Path) -> int:
    listed = subprocess.run(["ss", "-xpH"], check=True, capture_output=True, text=True, timeout=10).stdout
    return sum(f"pid={pid}," in row and str(sockets) in row for row in listed.splitlines())


@contextmanager
def egress(sockets: Path) -> Iterator[list[bytes]]:
    """An egress socket that answers in capitals once its client has said something."""
    seen: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sockets / "egress.sock"))
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65536):
                        seen.append(data)
                        connection.sendall(data.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


async def test_the_relay_keeps_a_half_close_and_every_byte(
    door: GuestDoor, sockets: Path, start_guest: StartGuest
) -> None:
    port = choose_port(0)
    start_guest(f"--relay-port={port}")
    await door.guest(10)
    sent = b"abc" * 500_000
    with egress(sockets):
        got = await anyio.to_thread.run_sync(talk, port, sent)
    assert got == sent.upper()


def talk(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:

        def write() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        writer = threading.Thread(target=write)
        writer.start()
        got = b""
        while data := client.recv(65536):
            got += data
        writer.join(10)
    return got


async def test_a_port_of_the_machine_is_listed_and_reached(guest: Guest) -> None:
    port = choose_port(0)
    server = (
        f"import socket; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); c, _ = s.accept()\n"
        "data = b''\nwhile part := c.recv(65536): data += part\nc.sendall(data[::-1]); c.close()"
    )
    async with guest.start(Command(new_effect_id(), ("/usr/bin/env", "python3", "-c", server))) as running:
        async for chunk in running.chunks():
            assert chunk.data == b"up\n", chunk
            break
        assert port in await guest.ports()
        async with guest.connect(port) as stream:
            assert (await guest.activity()).previews == 1
            sent = os.urandom(600_000)
            await stream.send(sent)
            stream.end()
            got = b""
            while (data := await stream.receive()) is not None:
                got += data
        assert got == sent[::-1]
        assert (await running.exit(10)).code == 0
    with pytest.raises(UnavailableError, match="Nothing listens"):
        async with guest.connect(port):
            pass


async def test_activity_says_what_speaks_against_freezing(guest: Guest) -> None:
    assert (await guest.activity()).commands == 0
    await guest.terminals.open("t", argv=("sleep", "100"))
    async with guest.start(Command(new_effect_id(), "sleep 100")) as running:
        activity = await guest.activity()
        assert (activity.commands, [known.terminal for known in activity.terminals]) == (1, ["t"])
        await guest.signal(running.effect, signal.SIGKILL)
        await running.exit(5)
    assert (await guest.activity()).commands == 0


async def test_processes_are_listed_with_their_owner(guest: Guest) -> None:
    async with guest.start(Command(new_effect_id(), ("sleep", "1234"))) as running:
        found = [process for process in await guest.processes() if process.argv == "sleep 1234"]
        assert [(process.uid, process.name) for process in found] == [(1000, "sleep")]
        await guest.signal(running.effect, signal.SIGKILL)


def is_tmpfs(path: Path) -> bool:
    return subprocess.check_output(["stat", "-f", "-c", "%T", path], timeout=10) == b"tmpfs\n"


async def test_a_deleted_file_in_use_is_reported_before_a_checkpoint(
    door: GuestDoor, guest: Guest, workspace: Path
) -> None:
    text = "exec 5> 'gone file'; rm 'gone file'; touch 'odd (deleted)'; exec 6> 'odd (deleted)'; echo ok; sleep 1000"
    async with guest.start(Command(new_effect_id(), text)) as running:
        async for _ in running.chunks():
            break
        told = await door.quiesce(30)
    found = [line for line in told.unsavable if str(workspace) in line]
    assert found or is_tmpfs(workspace)
    assert all(line.endswith(f"{workspace}/gone file") for line in found)
    door.open()
    await (await door.guest(10)).signal(running.effect, signal.SIGKILL)


async def test_a_guest_that_stands_still_is_given_up_after_the_deadline(
    door: GuestDoor, start_guest: StartGuest
) -> None:
    process = start_guest()
    guest = await door.guest(10)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(DeadlineError, match="did not answer"):
            await guest.ping(0.2)
    finally:
        process.send_signal(signal.SIGCONT)
    await guest.ping()  # the answer that came late did no harm


async def test_a_connected_guest_that_has_nothing_to_do_does_nothing(door: GuestDoor, start_guest: StartGuest) -> None:
    process = start_guest()
    await (await door.guest(10)).ping()

    def switches() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return sum(int(row.split()[1]) for row in status.splitlines() if "ctxt_switches" in row)

    seen = [switches()]

    def is_still() -> bool:
        seen.append(switches())
        return len(seen) > 30 and len(set(seen[-30:])) == 1

    await eventually(is_still)
    logging.getLogger(__name__).info("switches: %s", seen)


async def test_a_door_that_was_replaced_does_not_take_the_new_one_down(sockets: Path, start_guest: StartGuest) -> None:
    async with open_door(sockets, welcome()) as old, open_door(sockets, welcome()) as new:
        old.close()
        start_guest()
        await (await new.guest(10)).ping()


async def test_many_big_requests_at_once_all_arrive(guest: Guest) -> None:
    async def run(number: int) -> None:
        done = await guest.run(Command(new_effect_id(), ("printf", "%.5s", f"{number:05}" + "x" * 120_000)))
        assert done.stdout == f"{number:05}".encode()

    async with anyio.create_task_group() as tasks:
        for number in range(120):
            tasks.start_soon(run, number)


async def test_a_guest_that_comes_when_no_descriptor_is_left_is_let_in_later_and_costs_little_until_then(
    door: GuestDoor, sockets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tries() -> list[float]:
        return [record.created for record in caplog.records if "cannot be let in" in record.message]

    with socket.socket(socket.AF_UNIX) as dialled:
        dialled.setblocking(False)
        with no_descriptors_left():
            dialled.connect(str(sockets / SOCKET))
            dialled.sendall(encode_words(Kind.HELLO, 0, HELLO))
            await eventually(lambda: len(tries()) == 3)
        assert tries()[2] - tries()[0] > 0.15
        assert (await door.guest(10)).is_here
