"""The life of a machine, row by row: what is done next, what is refused, what each change makes of a record."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from outlive.base import (
    CheckpointId,
    ConflictError,
    EffectId,
    FencedError,
    NodeId,
    NotFoundError,
    UnavailableError,
    new_checkpoint_id,
)
from outlive.machine import lifecycle
from outlive.machine.lifecycle import NO_CHANGE, Change, Step, Verb, next_step
from outlive.machine.status import Desired, Machine, State
from outlive.testing.machine_records import a_machine

NOW = datetime(2031, 1, 1, tzinfo=UTC)
NODE, OTHER = NodeId("node_a"), NodeId("node_b")
SAVED = CheckpointId("ckpt_saved")

STATES: tuple[State, ...] = get_args(State)
DESIRED: tuple[Desired, ...] = get_args(Desired)
ON_A_NODE = ("running", "paused")

# Observed, then what is done for: running, paused, hibernated, deleted. As the module's own table says.
TABLE: dict[State, tuple[Step | None, Step | None, Step | None, Step | None]] = {
    "starting": ("boot", "boot", "boot", "remove"),
    "running": (None, "freeze", "hibernate", "remove"),
    "paused": ("thaw", None, None, "remove"),
    "hibernated": ("wake", None, None, "remove"),
    "lost": ("wake", None, None, "remove"),
    "deleted": (None, None, None, None),
}
ROWS = [(state, desired, step) for state in STATES for desired, step in zip(DESIRED, TABLE[state], strict=True)]


def machine(state: State = "running", desired: Desired = "running", **fields: Any) -> Machine:
    """A machine with a checkpoint; at generation 3 of NODE if something of it may be on a node."""
    known: dict[str, Any] = {"state": state, "desired": desired, "generation": 3, "checkpoint": SAVED}
    known |= {"node": NODE if state in ON_A_NODE else None}
    return a_machine(**known | fields)


def after(record: Machine, change: Change) -> Machine:
    return record.model_copy(update=dict(change.fields))


def kinds(change: Change) -> list[str]:
    return [event.kind for event in change.events]


# ── the table ──


@pytest.mark.parametrize(("state", "desired", "step"), ROWS)
def test_the_next_step_is_the_one_of_the_table(state: State, desired: Desired, step: Step | None) -> None:
    assert next_step(machine(state, desired), is_node_gone=False) == step


@pytest.mark.parametrize(("state", "desired", "step"), ROWS)
def test_only_the_next_step_is_due(state: State, desired: Desired, step: Step | None) -> None:
    assert [each for each in get_args(Step) if lifecycle.is_due(machine(state, desired), each)] == (
        [step] if step else []
    )


@pytest.mark.parametrize(("state", "desired", "step"), ROWS)
def test_what_is_on_a_node_that_is_gone_is_declared_lost_first(
    state: State, desired: Desired, step: Step | None
) -> None:
    placed = machine(state, desired, node=NODE)
    assert next_step(placed, is_node_gone=True) == (None if state == "deleted" else "declare_lost")
    elsewhere = machine(state, desired, node=None)
    assert next_step(elsewhere, is_node_gone=True) == step


def test_what_is_lost_without_a_checkpoint_is_left_alone() -> None:
    lost = machine("lost", checkpoint=None)
    assert next_step(lost, is_node_gone=False) is None
    assert next_step(after(lost, lifecycle.ask(lost, "delete", NOW)), is_node_gone=False) == "remove"


def test_a_checkpoint_that_is_wanted_is_made_while_the_machine_is_wanted_up() -> None:
    wanted = machine(checkpoints_wanted=1)
    assert next_step(wanted, is_node_gone=False) == "checkpoint"
    assert not wanted.is_settled
    assert next_step(machine(checkpoints_wanted=1, checkpoints_made=1), is_node_gone=False) is None
    assert next_step(machine("paused", "paused", checkpoints_wanted=1), is_node_gone=False) is None


@pytest.mark.parametrize("state", ["running", "paused", "hibernated", "deleted"])
def test_a_machine_that_is_as_wanted_is_settled(state: Any) -> None:
    record = machine(state, state)
    assert record.is_settled
    assert record.is_on_node == (state in ON_A_NODE)
    assert next_step(record, is_node_gone=False) is None


# ── what is asked ──

WANTED: dict[Verb, Desired] = {
    "pause": "paused",
    "resume": "running",
    "wake": "running",
    "exec": "running",
    "hibernate": "hibernated",
    "delete": "deleted",
}
REFUSED: dict[tuple[State, Desired], dict[str, str]] = {
    ("paused", "paused"): dict.fromkeys(("hibernate", "checkpoint", "fork", "exec", "wake"), "machine.paused"),
    ("running", "paused"): dict.fromkeys(("hibernate", "checkpoint", "fork", "exec", "wake"), "machine.paused"),
    ("paused", "running"): dict.fromkeys(("hibernate", "checkpoint", "fork", "exec", "wake"), "machine.paused"),
    ("hibernated", "hibernated"): {"pause": "machine.hibernated"},
    ("running", "hibernated"): {"pause": "machine.hibernated"},
    ("hibernated", "running"): {"pause": "machine.hibernated"},
    ("starting", "running"): {},
    ("running", "running"): {},
    ("lost", "running"): {},
    ("running", "deleted"): {verb: "machine.deleted" for verb in get_args(Verb) if verb != "delete"},
    ("deleted", "deleted"): dict.fromkeys(get_args(Verb), "machine.deleted"),
}


@pytest.mark.parametrize("verb", get_args(Verb))
@pytest.mark.parametrize(("state", "desired"), REFUSED)
def test_a_verb_is_refused_or_changes_what_is_wanted(state: State, desired: Desired, verb: Verb) -> None:
    record = machine(state, desired)
    code = REFUSED[state, desired].get(verb)
    if code is not None:
        with pytest.raises((ConflictError, NotFoundError)) as refused:
            lifecycle.ask(record, verb, NOW)
        assert refused.value.code == code
    elif verb in WANTED:
        change = lifecycle.ask(record, verb, NOW)
        assert after(record, change).desired == WANTED[verb]
        assert (change == NO_CHANGE) == (desired == WANTED[verb])
        assert after(record, change).state == state
    else:
        wanted = after(record, lifecycle.ask(record, verb, NOW)).checkpoints_wanted
        assert wanted == (0 if (state, desired) == ("hibernated", "hibernated") else 1)


def test_what_is_lost_without_a_checkpoint_can_only_be_deleted() -> None:
    lost = machine("lost", checkpoint=None, reason="its node burnt")
    for verb in get_args(Verb):
        if verb != "delete":
            with pytest.raises(ConflictError) as refused:
                lifecycle.ask(lost, verb, NOW)
            assert refused.value.code == "machine.lost"
            assert "its node burnt" in refused.value.message
    assert after(lost, lifecycle.ask(lost, "delete", NOW)).desired == "deleted"


def test_of_a_lost_machine_that_shall_sleep_its_checkpoint_is_all_there_is() -> None:
    assert lifecycle.ask(machine("lost", "hibernated"), "fork", NOW) == NO_CHANGE


def test_checkpoints_that_are_asked_for_before_one_is_begun_are_one() -> None:
    record = machine(checkpoints_made=4, checkpoints_wanted=4)
    first = after(record, lifecycle.ask(record, "checkpoint", NOW))
    assert first.checkpoints_wanted == 5
    assert after(first, lifecycle.ask(first, "fork", NOW)).checkpoints_wanted == 5


def test_a_checkpoint_that_was_begun_before_it_was_asked_for_is_not_the_one() -> None:
    wanted = machine(checkpoints_made=4, checkpoints_wanted=5)
    begun = after(wanted, lifecycle.begin_checkpoint(wanted, NODE, 3))
    asked = after(begun, lifecycle.ask(begun, "fork", NOW))
    assert asked.checkpoints_wanted == 6
    ended = lifecycle.end_checkpoint(
        asked, NODE, 3, new_checkpoint_id(), NOW, number=begun.checkpoints_begun, has_memory=True
    )
    assert (after(asked, ended).checkpoints_made, next_step(after(asked, ended), is_node_gone=False)) == (
        5,
        "checkpoint",
    )


def test_a_checkpoint_that_was_cut_off_is_begun_again_for_all_that_is_wanted_by_then() -> None:
    record = machine(checkpoints_made=4, checkpoints_begun=5, checkpoints_wanted=6)
    again = after(record, lifecycle.begin_checkpoint(record, NODE, 3))
    assert again.checkpoints_begun == 6
    assert lifecycle.begin_checkpoint(again, NODE, 3) == NO_CHANGE


def test_whoever_asks_for_a_checkpoint_of_one_that_falls_asleep_has_it() -> None:
    """It was saved before that, and stands still since."""
    record = machine(desired="hibernated", checkpoints_begun=1, checkpoints_made=1, checkpoints_wanted=2)
    asleep = after(record, lifecycle.end_hibernate(record, NODE, 3, SAVED, NOW))
    assert (asleep.checkpoints_made, asleep.checkpoints_wanted, asleep.is_settled) == (2, 2, True)


# ── coming up ──


@pytest.mark.parametrize(("state", "kind"), [("starting", "booted"), ("hibernated", "woken"), ("lost", "woken")])
def test_a_machine_comes_up_as_a_new_generation(state: State, kind: str) -> None:
    record = machine(state, is_memory_doubtful=True, reason="old")
    begun = after(record, lifecycle.begin_up(record, NODE, NOW))
    assert (begun.state, begun.node, begun.generation, begun.is_booting) == (state, NODE, 4, True)
    change = lifecycle.end_up(begun, NODE, 4, NOW, base_key="key", is_cold=False)
    up = after(begun, change)
    assert (up.state, up.is_booting, up.is_memory_doubtful, up.reason) == ("running", False, False, None)
    assert up.spec.base_key == "key"
    assert kinds(change) == [kind]
    assert lifecycle.end_up(up, NODE, 4, NOW, base_key="other", is_cold=True) == NO_CHANGE


def test_a_boot_that_never_came_up_is_begun_again_and_the_first_is_fenced() -> None:
    begun = after(machine("starting"), lifecycle.begin_up(machine("starting"), NODE, NOW))
    assert next_step(begun, is_node_gone=False) == "boot"
    again = after(begun, lifecycle.begin_up(begun, OTHER, NOW))
    assert again.generation == begun.generation + 1
    with pytest.raises(FencedError):
        lifecycle.end_up(again, NODE, begun.generation, NOW, base_key="key", is_cold=False)


@pytest.mark.parametrize(
    ("state", "desired", "code"),
    [
        ("running", "running", "machine.not_down"),
        ("paused", "running", "machine.not_down"),
        ("deleted", "deleted", "machine.not_down"),
        ("starting", "deleted", "machine.not_down"),
        ("hibernated", "hibernated", "machine.not_wanted"),
        ("lost", "paused", "machine.not_wanted"),
    ],
)
def test_what_is_up_or_not_wanted_up_is_not_started(state: State, desired: Desired, code: str) -> None:
    with pytest.raises(ConflictError) as refused:
        lifecycle.begin_up(machine(state, desired), NODE, NOW)
    assert refused.value.code == code


@pytest.mark.parametrize("desired", ["running", "paused", "hibernated"])
def test_a_new_machine_is_booted_whatever_becomes_of_it_then(desired: Desired) -> None:
    assert lifecycle.begin_up(machine("starting", desired), NODE, NOW).fields["generation"] == 4


def test_a_cold_wake_is_said_and_a_first_boot_is_always_cold() -> None:
    for state, expected in (("hibernated", ["woken", "rebooted"]), ("starting", ["booted"])):
        begun = machine(state, node=NODE, is_booting=True)  # type: ignore[arg-type]
        assert kinds(lifecycle.end_up(begun, NODE, 3, NOW, base_key="key", is_cold=True)) == expected


def test_one_that_was_born_from_a_checkpoint_without_its_memory_says_so() -> None:
    begun = machine("starting", node=NODE, is_booting=True, origin=SAVED)
    for is_cold, facts in ((True, {"node": NODE, "is_cold": True}), (False, {"node": NODE})):
        [booted] = lifecycle.end_up(begun, NODE, 3, NOW, base_key="key", is_cold=is_cold).events
        assert (booted.kind, booted.data) == ("booted", facts)


def test_effects_that_are_no_longer_in_the_machine_are_said() -> None:
    begun = machine("lost", node=NODE, is_booting=True)
    gone = [EffectId("eff_1"), EffectId("eff_2")]
    change = lifecycle.end_up(begun, NODE, 3, NOW, base_key="key", is_cold=False, gone_effects=gone)
    assert kinds(change) == ["woken", "rolled_back"]
    assert change.events[-1].data == {"checkpoint": SAVED, "effects": gone}


@pytest.mark.parametrize("memory", [False, True])
def test_one_that_did_not_come_up_is_where_it_was(memory: bool) -> None:
    begun = machine("hibernated", node=NODE, is_booting=True)
    change = lifecycle.fail_up(begun, NODE, 3, NOW, was="hibernated", reason="why", memory=memory)
    failed = after(begun, change)
    assert (failed.state, failed.node, failed.is_booting, failed.reason) == ("hibernated", None, False, "why")
    assert failed.is_memory_doubtful == memory
    assert kinds(change) == ["failed"]
    assert next_step(failed, is_node_gone=False) == "wake"


def test_one_whose_coming_up_was_recorded_and_then_failed_is_not_left_up_on_no_node() -> None:
    begun = machine("hibernated", node=NODE, is_booting=True)
    up = after(begun, lifecycle.end_up(begun, NODE, 3, NOW, base_key="key", is_cold=False))
    failed = after(up, lifecycle.fail_up(up, NODE, 3, NOW, was="hibernated", reason="no answer", memory=False))
    assert (failed.state, failed.node, failed.is_booting) == ("hibernated", None, False)
    assert next_step(failed, is_node_gone=False) == "wake"


# ── what a node says ──


@pytest.mark.parametrize(("node", "generation"), [(OTHER, 3), (NODE, 2), (NODE, 4)])
def test_only_the_holder_ends_a_step(node: NodeId, generation: int) -> None:
    up, booting = machine(), machine("hibernated", node=NODE, is_booting=True)
    ends: list[Callable[[], Change]] = [
        lambda: lifecycle.end_up(booting, node, generation, NOW, base_key="key", is_cold=False),
        lambda: lifecycle.fail_up(booting, node, generation, NOW, was="hibernated", reason="why", memory=True),
        lambda: lifecycle.end_freeze(up, node, generation, NOW),
        lambda: lifecycle.end_thaw(machine("paused"), node, generation, NOW),
        lambda: lifecycle.begin_checkpoint(up, node, generation),
        lambda: lifecycle.end_checkpoint(up, node, generation, new_checkpoint_id(), NOW, number=1, has_memory=True),
        lambda: lifecycle.end_hibernate(up, node, generation, SAVED, NOW),
    ]
    for end in ends:
        with pytest.raises(FencedError) as refused:
            end()
        assert refused.value.code == "machine.fenced"


def test_a_machine_is_frozen_and_thawed_once() -> None:
    frozen = lifecycle.end_freeze(machine(), NODE, 3, NOW)
    paused = after(machine(), frozen)
    assert (paused.state, kinds(frozen)) == ("paused", ["paused"])
    assert lifecycle.end_freeze(paused, NODE, 3, NOW) == NO_CHANGE
    thawed = lifecycle.end_thaw(paused, NODE, 3, NOW)
    assert (after(paused, thawed).state, kinds(thawed)) == ("running", ["resumed"])
    assert lifecycle.end_thaw(after(paused, thawed), NODE, 3, NOW) == NO_CHANGE


def test_a_checkpoint_counts_once() -> None:
    record = machine(checkpoints_wanted=1, is_memory_doubtful=True)
    new = new_checkpoint_id()
    change = lifecycle.end_checkpoint(record, NODE, 3, new, NOW, number=1, has_memory=False)
    saved = after(record, change)
    assert (saved.checkpoint, saved.checkpoints_made, saved.is_memory_doubtful) == (new, 1, False)
    assert change.events[0].data == {"checkpoint": new, "has_memory": False}
    assert lifecycle.end_checkpoint(saved, NODE, 3, new, NOW, number=1, has_memory=False) == NO_CHANGE


def test_a_machine_sleeps_when_its_newest_checkpoint_is_all_of_it() -> None:
    record = machine(desired="hibernated", checkpoints_wanted=2, checkpoints_made=1)
    change = lifecycle.end_hibernate(record, NODE, 3, SAVED, NOW)
    asleep = after(record, change)
    assert (asleep.state, asleep.node, asleep.is_settled, kinds(change)) == ("hibernated", None, True, ["hibernated"])
    assert lifecycle.end_hibernate(asleep, NODE, 3, SAVED, NOW) == NO_CHANGE


def test_a_machine_does_not_sleep_without_a_checkpoint_of_it() -> None:
    with pytest.raises(ConflictError) as refused:
        lifecycle.end_hibernate(machine(), NODE, 3, new_checkpoint_id(), NOW)
    assert refused.value.code == "machine.not_saved"


@pytest.mark.parametrize("state", ON_A_NODE)
def test_one_that_a_person_stopped_sleeps_until_it_is_resumed(state: State) -> None:
    stopped = machine(state, "paused")
    asleep = after(stopped, lifecycle.end_hibernate(stopped, NODE, 3, SAVED, NOW))
    assert asleep.is_settled
    assert next_step(asleep, is_node_gone=False) is None
    for verb in ("exec", "wake", "fork"):
        with pytest.raises(ConflictError) as refused:
            lifecycle.ask(asleep, verb, NOW)
        assert refused.value.code == "machine.paused"
    resumed = after(asleep, lifecycle.ask(asleep, "resume", NOW))
    assert next_step(resumed, is_node_gone=False) == "wake"


def test_a_machine_is_removed_once() -> None:
    change = lifecycle.end_remove(machine(desired="deleted"), NOW)
    gone = after(machine(desired="deleted"), change)
    assert (gone.state, gone.node, kinds(change)) == ("deleted", None, ["deleted"])
    assert lifecycle.end_remove(gone, NOW) == NO_CHANGE


# ── what others find ──


@pytest.mark.parametrize("state", ON_A_NODE)
def test_what_was_up_on_a_node_that_is_gone_is_lost(state: State) -> None:
    change = lifecycle.declare_lost(machine(state), NODE, NOW, reason="gone")
    lost = after(machine(state), change)
    assert (lost.state, lost.node, lost.generation, lost.reason) == ("lost", None, 4, "gone")
    assert kinds(change) == ["lost"]


@pytest.mark.parametrize("state", ["starting", "hibernated", "lost"])
def test_what_was_only_being_made_has_lost_nothing(state: Any) -> None:
    booting = machine(state, node=NODE, is_booting=True)
    change = lifecycle.declare_lost(booting, NODE, NOW, reason="gone")
    back = after(booting, change)
    assert (back.state, back.node, back.is_booting, back.generation) == (state, None, False, 4)
    assert kinds(change) == []


def test_what_is_elsewhere_or_deleted_is_not_lost() -> None:
    assert lifecycle.declare_lost(machine(), OTHER, NOW, reason="gone") == NO_CHANGE
    assert lifecycle.declare_lost(machine("deleted", node=NODE), NODE, NOW, reason="gone") == NO_CHANGE


GIVEN_UP: list[tuple[Step, Machine, dict[str, Any]]] = [
    ("boot", machine("starting", node=NODE, is_booting=True), {"state": "lost", "node": None, "is_booting": False}),
    ("wake", machine("hibernated", node=NODE, is_booting=True), {"desired": "hibernated", "node": None}),
    ("wake", machine("lost", node=NODE, is_booting=True), {"desired": "running", "node": None, "is_booting": False}),
    ("hibernate", machine(desired="hibernated"), {"desired": "running", "node": NODE}),
    ("checkpoint", machine(checkpoints_wanted=2, checkpoints_made=1), {"checkpoints_wanted": 1}),
    ("freeze", machine(desired="paused"), {"desired": "running", "state": "running"}),
    ("thaw", machine("paused"), {"desired": "paused", "state": "paused"}),
    ("remove", machine(desired="deleted"), {"desired": "deleted"}),
    ("declare_lost", machine(), {"state": "running"}),
]


@pytest.mark.parametrize(("step", "record", "expected"), GIVEN_UP)
def test_what_failed_for_good_is_not_wanted_any_more(step: Step, record: Machine, expected: dict[str, Any]) -> None:
    change = lifecycle.give_up(record, step, NOW, reason="why")
    given_up = after(record, change)
    assert {field: getattr(given_up, field) for field in expected} == expected
    assert given_up.reason == "why"
    assert [(event.kind, event.data) for event in change.events] == [("failed", {"step": step, "reason": "why"})]


@pytest.mark.parametrize("step", ["boot", "wake", "hibernate", "checkpoint", "freeze", "thaw"])
@pytest.mark.parametrize("meanwhile", [machine(), machine(desired="deleted"), machine("hibernated", "hibernated")])
def test_what_came_through_after_all_is_not_given_up(step: Step, meanwhile: Machine) -> None:
    assert lifecycle.give_up(meanwhile, step, NOW, reason="why") == NO_CHANGE


def test_it_is_said_when_what_was_asked_for_was_not_reached() -> None:
    lifecycle.check_reached(machine(), "running")
    lifecycle.check_reached(machine("paused"), "running")  # a person was quicker
    for record in (machine("lost", reason="why"), machine("lost")):
        with pytest.raises(UnavailableError) as refused:
            lifecycle.check_reached(record, "running")
        assert (record.reason or "try again") in refused.value.message


def test_every_change_says_when_and_of_which_generation() -> None:
    later = NOW + timedelta(seconds=1)
    change = lifecycle.end_freeze(machine(), NODE, 3, later)
    assert change.fields["changed_at"] == later
    assert [(event.at, event.generation) for event in change.events] == [(later, 3)]
