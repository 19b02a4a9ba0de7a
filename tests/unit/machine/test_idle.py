"""What is in use is never idle; what is idle is frozen first and hibernated later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.machine.node.idle import Activity, IdlePolicy, decide_idle

_QUIET = Activity(commands=0, attached=0, quiet_s=0.0, is_frozen=False, is_halted=False)
_POLICY = IdlePolicy(30.0, 600.0)


@pytest.mark.parametrize(
    ("quiet_s", "is_frozen", "step"),
    [
        (29.9, False, "stay"),
        (30.0, False, "freeze"),
        (30.0, True, "stay"),
        (599.9, True, "stay"),
        (600.0, True, "hibernate"),
        (600.0, False, "hibernate"),
    ],
)
def test_quiet_machines_are_frozen_and_then_hibernated(quiet_s: float, is_frozen: bool, step: str) -> None:
    assert decide_idle(_QUIET._replace(quiet_s=quiet_s, is_frozen=is_frozen), _POLICY) == step


@given(st.floats(0, 1e9), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_a_running_command_an_operator_or_a_person_s_stop_is_never_idle(
    quiet_s: float, is_frozen: bool, commands: int, attached: int, is_halted: bool
) -> None:
    step = decide_idle(Activity(commands, attached, quiet_s, is_frozen, is_halted), _POLICY)
    if commands or attached or is_halted:
        assert step == "stay"


def test_never_means_never() -> None:
    forever = _QUIET._replace(quiet_s=1e12)
    assert decide_idle(forever, IdlePolicy(None, None)) == "stay"
    assert decide_idle(forever, IdlePolicy(None, 10.0)) == "hibernate"
    assert decide_idle(forever, IdlePolicy(10.0, None)) == "freeze"
