"""Where a client stands, and what is done when its node's attachment breaks."""

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.api.terminal_course import Course, Passed, decide, is_passing
from outlive.api.terminal_relay import checked
from outlive.api.websocket import RefusedMessageError
from outlive.base import (
    BrokenError,
    ConflictError,
    DeniedError,
    FencedError,
    InvalidError,
    NotFoundError,
    PrincipalId,
    UnavailableError,
    new_checkpoint_id,
    new_machine_id,
    new_terminal_id,
)
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Machine
from outlive.machine.terminal.frames import (
    Channel,
    final_success,
    status,
    status_detached,
    status_gap,
    status_machine,
    status_offset,
    status_seam,
)
from outlive.machine.terminal.status import Seam, Terminal

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = PrincipalId("prin_" + "1" * 32)


def terminal(**changes: Any) -> Terminal:
    id = new_terminal_id()
    return Terminal(id=id, machine=new_machine_id(), name=id, owner=OWNER, created_at=NOW, changed_at=NOW, **changes)


def machine(**changes: Any) -> Machine:
    return Machine(
        id=new_machine_id(),
        owner=OWNER,
        environment="default",
        spec=MachineSpec(),
        created_at=NOW,
        changed_at=NOW,
        **{"state": "running", **changes},
    )


def seen(*told: tuple[Channel, bytes]) -> Passed:
    passed = Passed()
    for channel, payload in told:
        passed.see(channel, payload)
    return passed


def test_output_is_counted_from_the_offset_that_was_said() -> None:
    passed = seen((Channel.STATUS, status_offset(100)), (Channel.OUTPUT, b"abc"), (Channel.OUTPUT, b"de"))
    assert passed.resume_at == 105


def test_what_draws_the_screen_is_not_counted_and_is_drawn_anew_when_it_was_cut() -> None:
    drawing = [(Channel.STATUS, status(offset=100, screen=True)), (Channel.OUTPUT, b"x" * 50)]
    assert seen(*drawing).resume_at is None
    assert seen(*drawing, (Channel.STATUS, status_offset(100)), (Channel.OUTPUT, b"ab")).resume_at == 102


def test_a_gap_and_a_seam_move_on() -> None:
    begun = (Channel.STATUS, status_offset(10))
    gap = [(Channel.STATUS, status_gap(10, 50)), (Channel.STATUS, status_offset(50))]
    assert seen(begun, *gap, (Channel.OUTPUT, b"ab")).resume_at == 52
    seam = (Channel.STATUS, status_seam(Seam(start=12, at=70, generation=2)))
    assert seen(begun, (Channel.OUTPUT, b"ab"), seam, (Channel.OUTPUT, b"c")).resume_at == 71


def test_before_anything_was_said_there_is_no_place() -> None:
    assert Passed().resume_at is None
    assert seen((Channel.OUTPUT, b"abc")).resume_at is None


def test_the_end_the_detachment_and_the_machine_are_noticed() -> None:
    assert seen((Channel.FINAL, final_success())).is_ended
    assert seen((Channel.STATUS, status_detached(5, "slow"))).is_detached
    assert seen((Channel.STATUS, status_machine("hibernated"))).machine == "hibernated"


@given(st.binary(max_size=200))
def test_a_status_that_is_none_changes_nothing(payload: bytes) -> None:
    passed = seen((Channel.STATUS, status_offset(3)))
    if b"offset" not in payload:
        passed.see(Channel.STATUS, payload)
        assert (passed.offset, passed.is_ended, passed.is_detached) == (3, False, False)


@pytest.mark.parametrize(
    ("changes", "course"),
    [
        ({}, Course("attach")),
        ({"state": "paused", "desired": "paused"}, Course("attach")),
        ({"desired": "paused"}, Course("attach")),
        ({"state": "starting"}, Course("wait", told="away")),
        ({"desired": "hibernated"}, Course("wait", told="hibernated")),
        ({"state": "hibernated", "desired": "hibernated"}, Course("wait", told="hibernated")),
        ({"state": "hibernated"}, Course("wait", told="hibernated")),
        ({"state": "lost", "checkpoint": new_checkpoint_id()}, Course("wait", told="away")),
        ({"state": "lost", "reason": "gone"}, Course("end", reason="gone")),
        ({"state": "deleted"}, Course("end", reason="The machine was deleted.")),
        ({"desired": "deleted"}, Course("end", reason="The machine was deleted.")),
    ],
)
def test_what_is_done_depends_on_the_machine_while_the_terminal_is_open(
    changes: dict[str, Any], course: Course
) -> None:
    assert decide(terminal(), machine(**changes)) == course


@pytest.mark.parametrize("state", ["exited", "closed", "lost"])
@pytest.mark.parametrize("of", ["running", "hibernated", "deleted", "lost"])
def test_of_a_terminal_that_has_ended_the_rest_is_read_wherever_its_machine_is(state: str, of: str) -> None:
    assert decide(terminal(state=state), machine(state=of)).do == "read"


def test_only_what_may_pass_is_waited_for() -> None:
    assert all(is_passing(kind("a.b", "c")) for kind in (UnavailableError, FencedError, ConflictError))
    assert not any(is_passing(kind("a.b", "c")) for kind in (DeniedError, NotFoundError, InvalidError, BrokenError))


@given(st.binary(min_size=1, max_size=200_000))
def test_a_message_is_taken_whole_or_refused(message: bytes) -> None:
    if message[0] not in (0, 4, 255):
        with pytest.raises(RefusedMessageError):
            checked(message)
    elif message[0] == 0:
        frames = checked(message)
        assert b"".join(frame.payload for frame in frames) == message[1:]
        assert all(len(frame.payload) <= 64 * 1024 for frame in frames)
    else:
        with contextlib.suppress(RefusedMessageError):
            assert [frame.payload for frame in checked(message)] == [message[1:]]
