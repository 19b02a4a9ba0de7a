"""Which checkpoint a fork's machine is made from, and what is known of what lies between."""

from datetime import UTC, datetime, timedelta

import pytest

from outlive.base import CheckpointId, EffectId, MachineId, derive, new_machine_id
from outlive.conversation.events import ConversationCreated, MachineAttached, MachineRolledBack, Parent
from outlive.loop.fork_facts import Told, nearest, rolled_back_before
from outlive.machine.status import Checkpoint, MachineEvent
from unit.loop.logs import Log, answer, call

NOW = datetime(2030, 1, 2, tzinfo=UTC)
MACHINE = new_machine_id()


def checkpoint(mark: int, age_s: int = 0, state: str = "ready") -> Checkpoint:
    at = NOW - timedelta(seconds=age_s)
    return Checkpoint.model_validate(
        {
            "id": CheckpointId(f"ckpt_{mark}_{age_s}"),
            "machine": MACHINE,
            "generation": 1,
            "state": state,
            "effects_mark": mark,
            "created_at": at,
            "deadline_at": at,
        }
    )


@pytest.mark.parametrize(
    ("marks", "last", "found"),
    [
        ([2, 5, 9], 5, 5),  # at the event itself
        ([2, 5, 9], 8, 5),  # before it
        ([7, 9], 4, 7),  # only later ones: the first of them
        ([0, 9], 4, 9),  # one that is older than the checkout is none
        ([], 4, None),
    ],
)
def test_the_nearest_checkpoint_is_the_newest_before_else_the_oldest_after(
    marks: list[int], last: int, found: int | None
) -> None:
    chosen = nearest([checkpoint(mark) for mark in reversed(marks)], first=1, last=last)
    assert (chosen and chosen.effects_mark) == found


def test_of_two_of_the_same_mark_the_newer_counts_and_one_that_is_being_made_does_not() -> None:
    chosen = nearest([checkpoint(3, 9), checkpoint(3, 5), checkpoint(3, 1, "making")], first=0, last=3)
    assert chosen is not None
    assert chosen.id == "ckpt_3_5"


def test_a_log_tells_its_machine_and_the_effects_of_its_steps() -> None:
    log = Log()
    turn = log.message()
    log.begin(turn)
    log.answered(turn, 1, answer("", call("a"), call("b")))
    log.request(turn, 2, call("a"))
    log.append(MachineAttached(machine="mach_1"), turn=turn)
    log.request(turn, 3, call("b"))
    log.request(turn, 2, call("a"), attempt=2)
    log.append(MachineRolledBack(machine="mach_1", checkpoint="ckpt_1", effects=["eff_1"]), turn=turn)
    told = Told()
    for event in log.events:
        told.take(event)
    assert told.machine == MachineId("mach_1")
    assert list(told.effects) == [derive("eff", derive("step", turn, n)) for n in (2, 3)]
    assert told.gone == {"eff_1"}
    fork = Log(ConversationCreated(parent=Parent(conversation=log.conversation, at=len(log.events))), (*log.events,))
    told.take(fork.events[-1])
    assert told.machine is None


def test_what_was_rolled_back_before_a_checkpoint_is_not_in_it() -> None:
    def event(kind: str, **data: object) -> MachineEvent:
        return MachineEvent.model_validate({"kind": kind, "at": NOW, "generation": 1, "data": data})

    history = [
        event("rolled_back", effects=["eff_1"]),
        event("checkpointed", checkpoint="ckpt_1"),
        event("rolled_back", effects=["eff_2"]),
        event("checkpointed", checkpoint="ckpt_2"),
    ]
    assert rolled_back_before(history, "ckpt_1") == {EffectId("eff_1")}
    assert rolled_back_before(history, "ckpt_2") == {EffectId("eff_1"), EffectId("eff_2")}
