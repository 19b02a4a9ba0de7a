"""Guests that lie, flood, stall and swap ids: the host hangs up, stays small, and lets the next one in."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from eventually import eventually
from integration.machine.guest.greeting import MACHINE, StartGuest
from integration.machine.guest.hostile import HELLO, Hostile, hostile_guest
from outlive.base import ConflictError, DeadlineError, EffectId, ExhaustedError, OutliveError, UnavailableError
from outlive.guest.flow import WINDOW
from outlive.guest.wire import PAYLOAD_LIMIT, Kind, Words, encode, encode_credit, encode_words
from outlive.machine.command import Command
from outlive.machine.guest_link import Guest, GuestDoor

pytestmark = pytest.mark.anyio

JOINED: Words = {"effect": "e", "exit": None, "stdout": 0, "stderr": 0, "is_new": True, "stdout_at": 0, "stderr_at": 0}
COMMAND = Command(EffectId("e"), "true")
Behaviour = Callable[[Hostile], None]


def hello(**changed: object) -> bytes:
    return encode_words(Kind.HELLO, 0, {**HELLO, **changed})


BAD_GREETINGS: dict[str, bytes] = {
    "a request first": encode_words(Kind.REQUEST, 1, {"do": "ping"}),
    "an answer first": encode_words(Kind.ANSWER, 1, {"ok": {}}),
    "a frame too long": (PAYLOAD_LIMIT + 1).to_bytes(4, "big") + bytes([Kind.HELLO]) + bytes(4),
    "no frame at all": b"GET / HTTP/1.1\r\n\r\n",
    "two hellos": hello() * 2,
    "hello and an answer": hello() + encode_words(Kind.ANSWER, 1, {"ok": {}}),
    "no JSON": encode(Kind.HELLO, 0, b"\xff\xff"),
    "deep JSON": encode(Kind.HELLO, 0, b"[" * PAYLOAD_LIMIT),
    "another version": hello(version=2),
    "no effects": hello(effects=None),
    "a boot id that is none": hello(boot="../../etc/passwd"),
    "a negative generation": hello(generation=-1),
    "a generation that is to come": hello(machine=MACHINE, generation=2),
    "a generation beyond all": hello(machine=MACHINE, generation=2**60),
    "a name that is endless": hello(machine="m" * 10_000),
}


@pytest.mark.parametrize("said", BAD_GREETINGS.values(), ids=BAD_GREETINGS.keys())
async def test_a_bad_greeting_is_turned_away(door: GuestDoor, sockets: Path, said: bytes) -> None:
    def behave(guest: Hostile) -> None:
        guest.say(said)
        assert guest.is_hung_up_on()
        guest_left.append(True)

    guest_left: list[bool] = []
    with hostile_guest(sockets, behave) as failed, anyio.fail_after(10):
        while not (guest_left or failed):
            await anyio.lowlevel.checkpoint()
    assert failed == []
    with pytest.raises(UnavailableError):
        await door.guest(0)


def unasked(frame: bytes) -> Behaviour:
    def behave(guest: Hostile) -> None:
        guest.greet()
        guest.next_request("start")
        guest.say(frame)
        assert guest.is_hung_up_on()

    return behave


def in_a_command(misbehave: Callable[[Hostile, int, int], None], **joined: object) -> Behaviour:
    """Answers `start` properly and then misbehaves with the ids of the streams."""

    def behave(guest: Hostile) -> None:
        guest.greet()
        identity, words = guest.next_request("start")
        guest.answer(identity, {**JOINED, **joined})
        streams = words["streams"]
        assert isinstance(streams, dict)
        misbehave(guest, streams["stdout"], streams["stderr"])
        assert guest.is_hung_up_on()

    return behave


def exit_words(**changed: object) -> Words:
    fine: Words = {"reason": "exited", "code": 0, "signal": None, "stdout": 0, "stderr": 0}
    return {**fine, "stdout_cut": 0, "stderr_cut": 0, "seconds": 0.1, **changed}


def lying_exit(**changed: object) -> Behaviour:
    def misbehave(guest: Hostile, stdout: int, stderr: int) -> None:
        guest.answer(guest.next_request("wait")[0], exit_words(**changed))
        guest.say(encode(Kind.END, stdout) + encode(Kind.END, stderr))

    return in_a_command(misbehave)


BEHAVIOURS: dict[str, Behaviour] = {
    "an answer to nothing": unasked(encode_words(Kind.ANSWER, 999, {"ok": {}})),
    "an answer that is neither yes nor no": unasked(encode_words(Kind.ANSWER, 3, {"maybe": 1})),
    "data on a stream that is none": unasked(encode(Kind.DATA, 999, b"x")),
    "the end of a stream that is none": unasked(encode(Kind.END, 999)),
    "credit for a stream that is none": unasked(encode_credit(999, 1)),
    "a request of its own": unasked(encode_words(Kind.REQUEST, 1, {"do": "ping"})),
    "a second hello": unasked(hello()),
    "a welcome": unasked(encode_words(Kind.WELCOME, 0, {})),
    "an unknown kind": unasked(bytes(4) + bytes([99]) + bytes(4)),
    "a frame too long": unasked((2**31).to_bytes(4, "big") + bytes([Kind.DATA]) + bytes(4)),
    "data of nothing": in_a_command(lambda guest, out, err: guest.data(out, b"")),
    "data after the end": in_a_command(
        lambda guest, out, err: guest.say(encode(Kind.END, out) + encode(Kind.DATA, out, b"x"))
    ),
    "two ends": in_a_command(lambda guest, out, err: guest.say(encode(Kind.END, out) * 2)),
    "done before the end": in_a_command(lambda guest, out, err: guest.say(encode(Kind.DONE, out))),
    "credit for what was not sent": in_a_command(lambda guest, out, err: guest.say(encode_credit(out, 1))),
    "an offset that is negative": in_a_command(lambda *_: None, stdout_at=-1),
    "an offset that is no number": in_a_command(lambda *_: None, stdout_at="0"),
    "an offset that was not asked for": in_a_command(lambda *_: None, stdout_at=5),
    "another effect": in_a_command(lambda *_: None, effect="other"),
    "an exit without a reason": lying_exit(reason="because"),
    "an exit with code and signal": lying_exit(signal=9),
    "an exit whose sizes are not what came": lying_exit(stdout=10**6),
    "an exit in no time at all": lying_exit(seconds="soon"),
}


@pytest.mark.parametrize("behave", BEHAVIOURS.values(), ids=BEHAVIOURS.keys())
async def test_a_guest_that_breaks_the_rules_is_left(
    door: GuestDoor, sockets: Path, start_guest: StartGuest, behave: Behaviour
) -> None:
    with hostile_guest(sockets, behave) as failed:
        guest = await door.guest(10)
        with anyio.fail_after(10), pytest.raises(UnavailableError) as raised:
            await guest.run(COMMAND)
        assert raised.value.code == "machine.guest_away"
        await guest.wait_gone()
    assert failed == []
    start_guest()
    assert (await (await door.guest(10)).run(COMMAND)).exit.code == 0, "the door is open to the next"


async def test_a_flood_on_one_stream_is_cut_off_at_the_window(door: GuestDoor, sockets: Path) -> None:
    def flood(guest: Hostile, stdout: int, stderr: int) -> None:
        frame = encode(Kind.DATA, stdout, bytes(PAYLOAD_LIMIT))
        for _ in range(2000):
            guest.say(frame)

    def behave(guest: Hostile) -> None:
        try:
            in_a_command(flood)(guest)
        except (BrokenPipeError, ConnectionResetError):
            cut_off.append(True)

    cut_off: list[bool] = []
    tracemalloc.start()
    with hostile_guest(sockets, behave) as failed:
        guest = await door.guest(10)
        async with guest.start(COMMAND) as running:
            await guest.wait_gone()
            with pytest.raises(UnavailableError):
                _ = [chunk async for chunk in running.chunks()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (failed, cut_off) == ([], [True])
    assert peak < 16 * WINDOW


async def test_a_guest_that_never_answers_costs_its_deadline_and_no_more(door: GuestDoor, sockets: Path) -> None:
    def behave(guest: Hostile) -> None:
        guest.greet()
        assert guest.is_hung_up_on()

    with hostile_guest(sockets, behave) as failed:
        guest = await door.guest(10)
        with pytest.raises(DeadlineError):
            await guest.ping(0.05)
        with pytest.raises(DeadlineError):
            async with guest.start(COMMAND, timeout_s=0.05):
                pass
        with pytest.raises(ExhaustedError) as busy:
            await _ask_for_ever(guest)
        assert busy.value.code == "machine.guest_busy"
        guest.close()
    assert failed == []


async def _ask_for_ever(guest: Guest) -> None:
    for _ in range(2000):
        try:
            await guest.ping(0)
        except DeadlineError:
            continue


async def test_a_guest_that_says_nothing_at_all_does_not_hold_the_door(
    door: GuestDoor, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.machine.guest_link.door.HELLO_S", 0.1)

    def behave(guest: Hostile) -> None:
        assert guest.is_hung_up_on()
        left.append(True)

    left: list[bool] = []
    with hostile_guest(sockets, behave) as failed:
        with pytest.raises(UnavailableError):
            await door.guest(0.3)
        await eventually(lambda: bool(left))
    assert failed == []


async def test_a_guest_that_does_not_read_is_left_after_the_deadline(
    door: GuestDoor, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.machine.guest_link.channel.WRITE_DEADLINE_S", 0.2)
    is_over = anyio.Event()
    with hostile_guest(sockets, lambda guest: guest.greet()) as failed:
        guest = await door.guest(10)
        big = Command(EffectId("e"), ("x" * 60_000,) * 10)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(_told_away, guest, big)
                await guest.wait_gone()
                is_over.set()
    assert is_over.is_set()
    assert failed == []


async def _told_away(guest: Guest, command: Command) -> None:
    with pytest.raises(OutliveError) as raised:
        await guest.run(command)
    assert raised.value.code == "machine.guest_away"


async def test_a_ledger_without_an_end_is_not_followed(door: GuestDoor, sockets: Path) -> None:
    entry: Words = {"effect": "same", "exit": None, "stdout": 0, "stderr": 0}

    def behave(guest: Hostile) -> None:
        guest.greet()
        try:
            while True:
                guest.answer(guest.next_request("effects")[0], {"effects": [entry], "is_last": False})
        except AssertionError:
            return

    with hostile_guest(sockets, behave) as failed:
        guest = await door.guest(10)
        with anyio.fail_after(10), pytest.raises(UnavailableError):
            await guest.effects()
    assert failed == []


PROCESS: Words = {"pid": 7, "parent": 1, "uid": 0, "state": "S", "name": "x", "argv": "x", "memory": 0}
FILE: Words = {"name": "f", "kind": "file", "size": 1, "mode": 0, "uid": 0, "gid": 0, "mtime_ns": 0, "target": None}
ENDLESS: dict[str, tuple[str, Callable[[int], Words]]] = {
    "processes, the same again": ("processes", lambda _: {"processes": [PROCESS], "last": 7}),
    "processes, none": ("processes", lambda page: {"processes": [], "last": page}),
    "files, the same again": ("file_list", lambda _: {"entries": [FILE], "last": "f"}),
    "files, backwards": ("file_list", lambda page: {"entries": [FILE], "last": "f" if page == 1 else "a"}),
    "files, behind what is no name": ("file_list", lambda _: {"entries": [FILE], "last": "\ud800"}),
}


@pytest.mark.parametrize(("verb", "page"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_a_list_without_an_end_is_not_followed(
    door: GuestDoor, sockets: Path, verb: str, page: Callable[[int], Words]
) -> None:
    def behave(guest: Hostile) -> None:
        guest.greet()
        try:
            for number in range(1, 100_000):
                guest.answer(guest.next_request(verb)[0], {**page(number), "is_last": False})
        except AssertionError:
            return

    async def follow(guest: Guest) -> None:
        if verb == "processes":
            await guest.processes()
            return
        after: str | None = None
        for _ in range(20):
            after = (await guest.files.list("/", after=after)).last

    with hostile_guest(sockets, behave) as failed:
        guest = await door.guest(10)
        with anyio.fail_after(10), pytest.raises(UnavailableError):
            await follow(guest)
        assert not guest.is_here
    assert failed == []


# The last ones are words of the host, at which callers wake a machine, look elsewhere or ask again.
@pytest.mark.parametrize(
    "code", ["api.secrets <script>", "machine.hibernated", "machine.fenced", "machine.guest_away", "machine.moving"]
)
async def test_words_of_a_refusal_are_bounded_and_its_code_is_one_of_ours(
    door: GuestDoor, sockets: Path, code: str
) -> None:
    error = {"kind": "unavailable", "code": code, "message": "m" * 50_000}

    def behave(guest: Hostile) -> None:
        guest.greet()
        guest.say(encode_words(Kind.ANSWER, guest.next_request("signal")[0], {"error": error}))
        guest.is_hung_up_on()

    with hostile_guest(sockets, behave):
        guest = await door.guest(10)
        with pytest.raises(OutliveError) as raised:
            await guest.signal(EffectId("e"), 9)
        assert raised.value.code == "machine.guest_refused"
        assert len(raised.value.message) <= 1000
        guest.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("unavailable", "machine.hibernated"),
        ("conflict", "machine.fenced"),
        ("unavailable", "machine.guest_away"),
        ("not_found", "machine.deleted"),
        ("not_found", "file.unknown"),
        ("broken", "machine.anything"),
    ],
)
async def test_no_guest_speaks_in_our_name(door: GuestDoor, sockets: Path, kind: str, code: str) -> None:
    """Whoever asks would act on it: ask again for ever, look elsewhere, take the machine for gone."""

    def behave(guest: Hostile) -> None:
        guest.greet()
        error = {"kind": kind, "code": code, "message": "Believe me."}
        guest.say(encode_words(Kind.ANSWER, guest.next_request("signal")[0], {"error": error}))
        guest.is_hung_up_on()

    with hostile_guest(sockets, behave):
        guest = await door.guest(10)
        with pytest.raises(ConflictError) as raised:
            await guest.signal(EffectId("e"), 9)
        assert (raised.value.code, raised.value.message) == ("machine.guest_refused", "Believe me.")
        guest.close()


async def test_more_of_a_file_than_was_asked_for_is_not_taken(door: GuestDoor, sockets: Path) -> None:
    facts: Words = {
        "name": "f",
        "kind": "file",
        "size": 1,
        "mode": 0,
        "uid": 0,
        "gid": 0,
        "mtime_ns": 0,
        "target": None,
    }

    def behave(guest: Hostile) -> None:
        guest.greet()
        identity, words = guest.next_request("file_read")
        guest.answer(identity, facts)
        streams = words["streams"]
        assert isinstance(streams, dict)
        guest.data(streams["content"], bytes(PAYLOAD_LIMIT))
        guest.is_hung_up_on()

    with hostile_guest(sockets, behave):
        guest = await door.guest(10)
        with anyio.fail_after(10), pytest.raises(ExhaustedError):
            await guest.files.read_bytes("f", most=100)
        guest.close()


async def test_bytes_one_by_one_take_no_more_room_than_bytes_at_once(door: GuestDoor, sockets: Path) -> None:
    def drip(guest: Hostile, stdout: int, stderr: int) -> None:
        for _ in range(WINDOW // 1024):
            guest.say(encode(Kind.DATA, stdout, b"x") * 1024)
        guest.say(encode(Kind.END, stderr))

    with hostile_guest(sockets, in_a_command(drip)) as failed:
        guest = await door.guest(10)
        async with guest.start(COMMAND) as running:
            tracemalloc.start()
            with anyio.fail_after(100):
                while not running._streams["stderr"].is_at_end:
                    await anyio.lowlevel.checkpoint()
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        guest.close()
    assert failed == []
    assert held < 10 * WINDOW
