"""What an attachment makes of the server's messages."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import BrokenError, NotFoundError
from outlive.client.terminal_wire import (
    Attached,
    TerminalExit,
    TerminalOutput,
    TerminalStatus,
    checked_terminal,
    input_body,
    resize_message,
    terminal_of,
)

TERMINAL = "term_" + "0" * 32


def _said(**words: Any) -> bytes:
    return b"\x05" + json.dumps(words).encode()


def _final(**words: Any) -> bytes:
    return b"\x03" + json.dumps(words).encode()


def _attached(offset: int, **words: Any) -> bytes:
    return _said(terminal=TERMINAL, offset=offset, cols=80, rows=24, lease=None, **words)


def test_output_is_counted_from_the_offset_that_was_told() -> None:
    state = Attached(7)
    first = state.take(_attached(7))
    assert isinstance(first[0], TerminalStatus)
    assert first[0].is_attached
    assert (state.cols, state.rows) == (80, 24)
    assert state.take(b"\x01abc") == [TerminalOutput(7, b"abc")]
    assert state.take(b"\x01d") == [TerminalOutput(10, b"d")]
    assert state.resume_at == 11


def test_what_a_server_repeats_is_given_out_once() -> None:
    state = Attached(5)
    state.take(_attached(2))
    assert state.take(b"\x01ab") == []
    assert state.take(b"\x01cde") == [TerminalOutput(5, b"de")]


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8))
def test_however_connections_are_cut_each_byte_comes_once(data: bytes, cuts: list[tuple[int, int]]) -> None:
    state = Attached(0)
    seen = b""
    for early, size in [*cuts, (0, 60)]:
        begin = max(0, (state.resume_at or 0) - early)  # a server may begin too early, never too late
        state.take(_attached(begin))
        for frame in state.take(b"\x01" + data[begin : begin + early + size]):
            assert isinstance(frame, TerminalOutput)
            assert frame.offset == len(seen)
            seen += frame.data
    assert seen == data


def test_a_screen_is_drawn_and_not_counted() -> None:
    state = Attached()
    state.take(_attached(100, screen=True))
    assert state.resume_at is None, "a screen that is not whole is drawn anew"
    assert state.take(b"\x01drawing") == [TerminalOutput(100, b"drawing", is_screen=True)]
    state.take(_said(offset=100))
    assert state.resume_at == 100
    assert state.take(b"\x01live") == [TerminalOutput(100, b"live")]


def test_gaps_and_seams_move_the_offset_forward() -> None:
    state = Attached(10)
    state.take(_attached(10))
    state.take(_said(gap={"from": 10, "to": 50}))
    state.take(_said(offset=50))
    assert state.take(b"\x01x") == [TerminalOutput(50, b"x")]
    state.take(_said(seam={"from": 40, "at": 200, "generation": 2}))
    assert state.take(b"\x01y") == [TerminalOutput(200, b"y")]


def test_the_lease_and_the_size_are_known_from_what_was_said() -> None:
    state = Attached(0)
    state.take(_attached(0))
    state.take(_said(lease={"operator": "prin_1", "name": "ana"}))
    state.take(_said(size={"cols": 132, "rows": 50}))
    assert state.lease is not None
    assert (state.lease["name"], state.cols, state.rows) == ("ana", 132, 50)
    state.take(_said(lease=None))
    assert state.lease is None


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        ([_said(exit=3, signal=None), _final(metadata={}, status="Failure")], TerminalExit(3)),
        ([_said(exit=None, signal=9), _final(status="Failure")], TerminalExit(None, 9)),
        ([_final(metadata={}, status="Success")], TerminalExit(0)),
        (
            [_final(status="Failure", details={"causes": [{"reason": "ExitCode", "message": "7"}]})],
            TerminalExit(7),
        ),
        (
            [_final(status="Failure", message="The machine was deleted.")],
            TerminalExit(None, None, "The machine was deleted."),
        ),
        ([_final(status="Failure", details={"causes": "nonsense"}, message="x")], TerminalExit(None, None, "x")),
    ],
)
def test_the_end_says_how(messages: list[bytes], end: TerminalExit) -> None:
    state = Attached(0)
    state.take(_attached(0))
    assert [frame for message in messages for frame in state.take(message)][-1] == end


@pytest.mark.parametrize("message", [b"", b"\x05no json", b"\x05[]", b"\x01early"])
def test_what_is_no_frame_is_refused(message: bytes) -> None:
    with pytest.raises(BrokenError):
        Attached().take(message)


def test_channels_of_later_servers_are_passed_over() -> None:
    assert Attached(0).take(b"\x09anything") == []


def test_what_is_typed_goes_as_text_if_it_is_text() -> None:
    assert input_body("é\x03") == {"data": "é\x03"}
    assert input_body("é".encode()) == {"data": "é"}
    assert input_body(b"\xff") == {"base64": "/w=="}


def test_only_ids_get_into_a_path_and_only_sizes_into_a_frame() -> None:
    assert checked_terminal(TERMINAL) == TERMINAL
    for wrong in ("", "term_1", "../x", f"mach_{'0' * 32}"):
        with pytest.raises(NotFoundError):
            checked_terminal(wrong)
    assert json.loads(resize_message(80, 24)[1:]) == {"Width": 80, "Height": 24}
    with pytest.raises(BrokenError):
        terminal_of({"id": TERMINAL})
