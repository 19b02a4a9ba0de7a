"""What is started again, when, and when it is enough."""

from hypothesis import given
from hypothesis import strategies as st

from outlive.processes.restart import WRONG_USE, Death, GiveUp, Restart, RestartPolicy, decide_restart, say_exit

POLICY = RestartPolicy(restarts=5, window_s=60.0, first_delay_s=0.1, max_delay_s=5.0)


def test_delays_double_and_the_sixth_death_within_the_window_is_the_last() -> None:
    deaths = [Death(float(moment)) for moment in range(6)]
    decisions = [decide_restart(POLICY, deaths[: count + 1], -9) for count in range(6)]
    assert decisions[:5] == [Restart(0.1), Restart(0.2), Restart(0.4), Restart(0.8), Restart(1.6)]
    assert decisions[5] == GiveUp("it died 6 times within 60 s")


def test_delays_are_capped() -> None:
    policy = POLICY._replace(restarts=10_000)
    assert decide_restart(policy, [Death(0.0)] * 9_999, 1) == Restart(5.0)


def test_deaths_outside_of_the_window_are_forgiven() -> None:
    assert decide_restart(POLICY, [Death(moment) for moment in (0.0, 1.0, 2.0, 3.0, 4.0, 100.0)], 1) == Restart(0.1)


def test_one_that_was_used_wrongly_is_not_started_again() -> None:
    assert isinstance(decide_restart(POLICY, [Death(0.0)], WRONG_USE), GiveUp)


def test_a_clean_exit_is_a_death_too() -> None:
    assert decide_restart(POLICY, [Death(0.0)], 0) == Restart(0.1)


def test_with_no_restarts_allowed_the_first_death_is_the_last() -> None:
    assert isinstance(decide_restart(POLICY._replace(restarts=0), [Death(3.0)], 1), GiveUp)


def test_one_that_was_well_is_always_started_again_but_later_each_time() -> None:
    deaths = [Death(float(moment), was_well=True) for moment in range(20)]
    decisions = [decide_restart(POLICY, deaths[: count + 1], -9) for count in range(20)]
    assert decisions[:3] == [Restart(0.1), Restart(0.2), Restart(0.4)]
    assert decisions[6:] == [Restart(5.0)] * 14
    # Not even when no restart is allowed: that bound is for what cannot live.
    assert decide_restart(POLICY._replace(restarts=0), deaths[:1], -9) == Restart(0.1)


def test_a_death_of_one_that_was_well_begins_the_count_anew() -> None:
    sick = [Death(float(moment)) for moment in range(5)]
    begun = [*sick, Death(5.0, was_well=True)]
    assert isinstance(decide_restart(POLICY, begun, 1), Restart)
    again = [Death(6.0 + moment) for moment in range(6)]
    assert isinstance(decide_restart(POLICY, begun + again[:5], 1), Restart)
    assert decide_restart(POLICY, begun + again, 1) == GiveUp("it died 6 times within 60 s")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(0, 20), st.floats(0.1, 1e3))
def test_it_gives_up_exactly_when_more_died_in_the_window_than_are_allowed(
    moments: list[float], restarts: int, window_s: float
) -> None:
    deaths = [Death(moment) for moment in sorted(moments)]
    policy = RestartPolicy(restarts, window_s, 0.1, 5.0)
    recent = len([death for death in deaths if death.moment > deaths[-1].moment - window_s])
    decision = decide_restart(policy, deaths, 1)
    assert isinstance(decision, GiveUp) == (recent > restarts)
    if isinstance(decision, Restart):
        assert 0.1 <= decision.delay_s <= 5.0


def test_an_exit_is_said_in_words() -> None:
    assert say_exit(3) == "exit code 3"
    assert say_exit(-9) == "killed by SIGKILL"
    assert say_exit(-64) in ("killed by SIGRTMAX", "killed by signal 64")
    assert say_exit(-99) == "killed by signal 99"
