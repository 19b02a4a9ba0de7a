"""A plan says one thing, passes over the wire, and is small."""

from typing import Any

import pytest
from pydantic import ValidationError

from outlive.base import StepId, new_conversation_id, new_turn_id
from outlive.loop.plan import Begin, CompactStep, Finish, ModelStep, Plan, ToolStep, Wait, newest

CONVERSATION, TURN = new_conversation_id(), new_turn_id()
SAID: list[dict[str, Any]] = [
    {"begin": Begin(agent="coder", model="demo:")},
    {"model": ModelStep(step=StepId("step_1"), n=1)},
    {"compact": CompactStep(step=StepId("step_1"), requested=7)},
    {"tools": (ToolStep(step=StepId("step_2"), call="c", name="shell"),)},
    {"wait": Wait(until="2030-01-02T03:04:05.000006Z")},
    {"finish": Finish(outcome="failed", reason="no key")},
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: next(iter(said)))
def test_a_plan_comes_back_from_the_wire_as_it_was(said: dict[str, Any]) -> None:
    plan = Plan(conversation=CONVERSATION, turn=TURN, seq=7, **said)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_what_a_plan_does_not_say_workers_of_before_need_not_know() -> None:
    written = Plan(conversation=CONVERSATION, turn=TURN, seq=7, **SAID[0]).model_dump_json()
    assert "compact" not in written


def test_a_plan_says_exactly_one_thing() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        Plan(conversation=CONVERSATION, turn=TURN, seq=7)
    for one in SAID:
        for other in SAID:
            if one is not other:
                with pytest.raises(ValidationError, match="exactly one"):
                    Plan(conversation=CONVERSATION, turn=TURN, seq=7, **one, **other)


def test_a_plan_names_its_turn_unless_there_is_nothing_to_do() -> None:
    assert Plan(conversation=CONVERSATION, seq=7, nothing=True).turn is None
    with pytest.raises(ValidationError, match="names the turn"):
        Plan(conversation=CONVERSATION, turn=TURN, seq=7, nothing=True)
    with pytest.raises(ValidationError, match="names the turn"):
        Plan(conversation=CONVERSATION, seq=7, **SAID[0])


def test_a_plan_of_a_newer_outlive_is_refused_and_not_half_understood() -> None:
    plan = Plan(conversation=CONVERSATION, turn=TURN, seq=7, **SAID[1]).model_dump()
    with pytest.raises(ValidationError):
        Plan.model_validate({**plan, "wait": {"seconds": 5}})


def test_of_several_plans_the_one_that_knows_most_counts() -> None:
    older = Plan(conversation=CONVERSATION, turn=TURN, seq=7, **SAID[2])
    newer = Plan(conversation=CONVERSATION, turn=TURN, seq=9, **SAID[1])
    assert newest(older, newer) == newest(newer, older) == newer
