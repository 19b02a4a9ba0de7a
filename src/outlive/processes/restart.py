"""Whether a process that died is started again. Pure.

Rule 1: a process that says it was used wrongly (exit code 2) would say so again: it is not restarted.
Rule 2: every other death, a clean exit included, is restarted, later each time, until there were more than `restarts`
        deaths within `window_s`. A process that has lived for longer than the window starts from the first delay again.
"""

import signal
from collections.abc import Sequence
from typing import NamedTuple

WRONG_USE = 2


class RestartPolicy(NamedTuple):
    restarts: int = 5
    window_s: float = 60.0
    first_delay_s: float = 0.1
    max_delay_s: float = 5.0


class Restart(NamedTuple):
    delay_s: float


class GiveUp(NamedTuple):
    reason: str


def decide_restart(policy: RestartPolicy, deaths: Sequence[float], exit_code: int) -> Restart | GiveUp:
    """`deaths`: the moments (monotonic, in order) of all deaths so far, the present one last."""
    if exit_code == WRONG_USE:
        return GiveUp("it was told something it cannot work with")
    recent = sum(1 for moment in deaths if moment > deaths[-1] - policy.window_s)
    if recent > policy.restarts:
        return GiveUp(f"it died {recent} times within {policy.window_s:g} s")
    # The exponent is bounded as the delay is: 2 ** 1100 is no float.
    return Restart(min(policy.max_delay_s, policy.first_delay_s * 2.0 ** min(recent - 1, 60)))


def say_exit(exit_code: int) -> str:
    """How a process ended, in words. A negative code is a signal, as `subprocess` has it."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
