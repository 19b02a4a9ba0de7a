"""The frames of an attached terminal: whole however they are cut, bounded, and in Kubernetes' words."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import InvalidError, PrincipalId, new_machine_id, new_principal_id, new_terminal_id
from outlive.machine.terminal import frames
from outlive.machine.terminal.door import Present
from outlive.machine.terminal.frames import FRAME_LIMIT, PAYLOAD_LIMIT, Channel, Frame, FrameDecoder
from outlive.machine.terminal.status import Lease, Seam, Size, Terminal

AT = datetime(2030, 1, 2, tzinfo=UTC)
LEASE = Lease(operator=PrincipalId("prin_ada"), name="ada", kind="person", since=AT, how="take", offset=12)

any_frames = st.lists(st.builds(Frame, st.sampled_from(Channel), st.binary(max_size=300)), max_size=20)


@given(any_frames, st.lists(st.integers(0, 4000)))
def test_however_the_bytes_are_cut_the_same_frames_come_out(sent: list[Frame], cuts: list[int]) -> None:
    wire = b"".join(frames.encode(*frame) for frame in sent)
    places = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    decoder, received = FrameDecoder(), list[Frame]()
    for begin, end in pairwise(places):
        received += decoder.feed(wire[begin:end])
    assert received == sent
    assert decoder.is_between


@given(st.sampled_from(Channel), st.binary(max_size=300))
def test_a_message_is_its_channel_and_its_payload(channel: Channel, payload: bytes) -> None:
    message = frames.encode_message(channel, payload)
    assert message == bytes([channel]) + payload
    assert frames.read_message(message) == Frame(channel, payload)
    assert frames.encode(channel, payload) == len(message).to_bytes(4, "big") + message


def test_a_frame_that_is_cut_is_not_between_two() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frames.encode(Channel.OUTPUT, b"word")[:-1]) == []
    assert not decoder.is_between


def test_the_longest_frame_passes_and_a_longer_one_is_refused() -> None:
    longest = bytes(PAYLOAD_LIMIT)
    assert FrameDecoder().feed(frames.encode(Channel.OUTPUT, longest)) == [Frame(Channel.OUTPUT, longest)]
    assert len(frames.encode_message(Channel.OUTPUT, longest)) == FRAME_LIMIT
    for encode in (frames.encode, frames.encode_message):
        with pytest.raises(InvalidError):
            encode(Channel.OUTPUT, longest + b"x")
    with pytest.raises(InvalidError):
        frames.read_message(bytes([Channel.OUTPUT]) + longest + b"x")


@pytest.mark.parametrize(
    "wire",
    [
        (FRAME_LIMIT + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",  # not even a channel
        b"\0\0\0\x05\x02",  # no such channel, and the rest has not come
        b"GET / HTTP/1.1",
    ],
)
def test_what_is_no_frame_is_refused_before_the_rest_of_it_comes(wire: bytes) -> None:
    with pytest.raises(InvalidError) as refused:
        FrameDecoder().feed(wire)
    assert refused.value.code == "terminal.frame"


@given(st.binary(max_size=50))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    for read in (frames.read_message, frames.read_resize, frames.read_close, frames.read_status, FrameDecoder().feed):
        try:
            read(data)
        except InvalidError as error:
            assert error.code == "terminal.frame"  # noqa: PT017  not every input is refused


# ── from the client ──


def test_a_size_is_read_as_kubernetes_clients_write_it() -> None:
    assert frames.read_resize(b'{"Width":120,"Height":40}') == Size(120, 40)
    assert frames.read_resize(json.dumps({"Height": 1, "Width": 1000}).encode()) == Size(1000, 1)
    assert frames.read_resize(frames.encode_resize(Size(80, 24))) == Size(80, 24)


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"80x24", b"[80, 24]", b'{"Width": 80}', b'{"width": 80, "height": 24}', b"\xff", b"[" * 5000),
        *(b'{"Width": 0, "Height": 24}', b'{"Width": 80, "Height": 1001}', b'{"Width": 80, "Height": -1}'),
        *(b'{"Width": true, "Height": 24}', b'{"Width": 80.5, "Height": 24}', b'{"Width": "80", "Height": 24}'),
    ],
)
def test_what_is_no_size_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidError):
        frames.read_resize(payload)


def test_a_close_names_one_channel() -> None:
    assert frames.read_close(b"\0") == Channel.INPUT
    for payload in (b"", b"\0\0", b"\x07"):
        with pytest.raises(InvalidError):
            frames.read_close(payload)


# ── to the client ──


def test_what_is_said_is_what_the_interface_promises() -> None:
    terminal = new_terminal_id()
    record = Terminal(
        id=terminal,
        machine=new_machine_id(),
        name=terminal,
        owner=new_principal_id(),
        lease=LEASE,
        created_at=AT,
        changed_at=AT,
    )
    present = Present(operator=LEASE.operator, name="ada", kind="person", mode="type", since=AT, client="cli")
    lease = {"operator": "prin_ada", "name": "ada", "kind": "person", "since": "2030-01-02T00:00:00Z", "how": "take"}
    lease |= {"offset": 12}  # type: ignore[dict-item]
    first = {"terminal": terminal, "offset": 5, "cols": 80, "rows": 24, "lease": lease}
    for said, expected in (
        (frames.status_attached(record, 5), first),
        (frames.status_attached(record, 5, is_screen=True), first | {"screen": True}),
        (frames.status_offset(2**60), {"offset": 2**60}),
        (frames.status_gap(3, 9), {"gap": {"from": 3, "to": 9}}),
        (frames.status_seam(Seam(start=3, at=9, generation=2)), {"seam": {"from": 3, "at": 9, "generation": 2}}),
        (frames.status_lease(LEASE), {"lease": lease}),
        (frames.status_lease(None), {"lease": None}),
        (frames.status_refused(LEASE), {"refused": {"lease": lease}}),
        (frames.status_size(200, 60), {"size": {"cols": 200, "rows": 60}}),
        (
            frames.status_operators([present]),
            {"operators": [{**present.model_dump(), "since": "2030-01-02T00:00:00Z"}]},
        ),
        (frames.status_machine("hibernated"), {"machine": "hibernated"}),
        (frames.status_title("a\udcffb\x07"), {"title": "a\udcffb\x07"}),
        (frames.status_bell(), {"bell": True}),
        (frames.status_detached(7, "slow"), {"detached": {"offset": 7, "reason": "slow"}}),
        (frames.status_exit(3), {"exit": 3, "signal": None}),
        (frames.status_exit(None, 9), {"exit": None, "signal": 9}),
    ):
        assert frames.read_status(said) == expected


@pytest.mark.parametrize(("code", "signal", "expected"), [(3, None, "3"), (None, 9, "137"), (None, None, "128")])
def test_an_exit_code_is_where_clients_of_kubernetes_look_for_it(
    code: int | None, signal: int | None, expected: str
) -> None:
    said = json.loads(frames.final_exit(code, signal))
    assert (said["status"], said["reason"]) == ("Failure", "NonZeroExitCode")
    assert said["details"]["causes"][0] == {"reason": "ExitCode", "message": expected}
    assert frames.final_exit(0) == frames.final_success()


def test_an_end_without_an_exit_says_why() -> None:
    said = json.loads(frames.final_failure("machine.lost", "The machine is lost.", terminal=new_terminal_id()))
    assert (said["status"], said["message"], said["metadata"]) == ("Failure", "The machine is lost.", {})
    assert said["details"]["causes"] == [{"reason": "machine.lost", "message": "The machine is lost."}]
    assert json.loads(frames.final_success()) == {"metadata": {}, "status": "Success"}
