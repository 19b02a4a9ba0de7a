"""What a round of filling the pools does, decided from records alone."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.base import CheckpointId, is_id, new_machine_id
from outlive.machine.building import HOUSE
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.environments import new_environment
from outlive.machine.pool import AT_ONCE, IDS_A_MINUTE, plan_pool, pool_ids, wake_if_warm
from outlive.machine.spec import MachineSpec
from outlive.machine.status import Environment, Machine, State

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHECKPOINT = CheckpointId("ckpt_" + "1" * 32)


def an_environment(warm: int = 1, **changes: object) -> Environment:
    made = new_environment(EnvironmentDefinition(name="web", warm=warm), AT)
    return made.model_copy(update={"checkpoint": CHECKPOINT, **changes})


def a_warm(found: Environment, state: State = "running", **changes: object) -> Machine:
    fields = {"id": new_machine_id(), "owner": HOUSE, "environment": found.digest, "spec": MachineSpec()}
    fields |= {"origin": found.checkpoint, "state": state, "is_warm": True, "created_at": AT, "changed_at": AT}
    return Machine.model_validate({**fields, **changes})


@given(wanted=st.integers(0, 9), there=st.integers(0, 9))
def test_a_pool_gets_what_it_lacks_and_lets_go_of_what_is_too_much(wanted: int, there: int) -> None:
    found = an_environment(warm=wanted)
    plan = plan_pool([found], [a_warm(found) for _ in range(there)])
    assert len(plan.create) == min(AT_ONCE, max(0, wanted - there))
    assert len(plan.release) == min(AT_ONCE, max(0, there - wanted))


def test_what_is_being_made_counts_and_what_is_to_go_does_not() -> None:
    found = an_environment(warm=2)
    plan = plan_pool([found], [a_warm(found, "starting"), a_warm(found, desired="deleted")])
    assert (len(plan.create), plan.release) == (1, ())


def test_only_what_is_ready_is_made() -> None:
    for state in ("building", "failed"):
        found = an_environment(state=state)
        machine = a_warm(found)
        assert plan_pool([found], [machine])[:3] == ((), (), (machine.id,))


def test_machines_of_another_build_are_let_go() -> None:
    found = an_environment()
    old = a_warm(found, origin=None)
    unknown = a_warm(found, environment="f" * 32)
    plan = plan_pool([found], [old, unknown])
    assert (set(plan.release), len(plan.create)) == ({old.id, unknown.id}, 1)


def test_what_went_to_sleep_with_its_node_is_woken() -> None:
    found = an_environment()
    asleep = a_warm(found, "hibernated", desired="hibernated")
    assert plan_pool([found], [asleep])[:3] == ((), (asleep.id,), ())
    assert wake_if_warm(asleep, AT).fields["desired"] == "running"
    assert wake_if_warm(asleep.model_copy(update={"is_warm": False}), AT).fields == {}


def test_a_pool_whose_machines_do_not_come_up_rests() -> None:
    found = an_environment()
    lost = a_warm(found, "lost")
    plan = plan_pool([found], [lost])
    assert (plan.create, plan.release, plan.troubled) == ((), (lost.id,), frozenset({found.digest}))
    assert plan_pool([found], [], resting=frozenset({found.digest})).create == ()


def test_two_names_of_one_definition_share_one_pool() -> None:
    found = an_environment(warm=2)
    assert len(plan_pool([found, found.model_copy(update={"name": "other"})], []).create) == 2


def test_ids_of_new_machines_are_the_same_for_all_who_see_the_same() -> None:
    found = an_environment()
    held = [a_warm(found), a_warm(found)]
    ids = pool_ids(found, held, AT)
    assert ids == pool_ids(found, held[::-1], AT + timedelta(seconds=50))
    assert len(set(ids)) == IDS_A_MINUTE
    assert all(is_id(each, "mach") for each in ids)


@pytest.mark.parametrize("change", ["held", "minute", "checkpoint"])
def test_ids_of_new_machines_change_with_the_pool(change: str) -> None:
    found = an_environment()
    held, at, other = [a_warm(found)], AT, found
    if change == "held":
        held = []
    elif change == "minute":
        at = AT + timedelta(minutes=1)
    else:
        other = found.model_copy(update={"checkpoint": None})
    assert not set(pool_ids(found, [a_warm(found)], AT)) & set(pool_ids(other, held, at))
