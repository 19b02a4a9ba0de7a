"""Whether a process that died is started again. Pure.

Rule 1: a process that says it was used wrongly (exit code 2) would say so again: it is not restarted.
Rule 2: every other death, a clean exit included, is restarted, later with each death within `window_s`.
Rule 3: more than `restarts` deaths in a row within `window_s`, each of a process that was not well yet, are the last. A
        process that was well when it died (killed from outside, most likely) begins the count anew.
"""

import signal
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

WRONG_USE = 2
MOST_DOUBLINGS = 60


class RestartPolicy(NamedTuple):
    restarts: int = 5
    window_s: float = 60.0
    first_delay_s: float = 0.1
    max_delay_s: float = 5.0


class Death(NamedTuple):
    moment: float  # monotonic
    was_well: bool = False  # it had been ready, and lived for a while


class Restart(NamedTuple):
    delay_s: float


class GiveUp(NamedTuple):
    reason: str


def decide_restart(policy: RestartPolicy, deaths: Sequence[Death], exit_code: int) -> Restart | GiveUp:
    """`deaths`: all deaths so far, in order, the present one last."""
    if exit_code == WRONG_USE:
        return GiveUp("it was told something it cannot work with")
    recent = [death for death in deaths if death.moment > deaths[-1].moment - policy.window_s]
    in_a_row = sum(1 for _ in takewhile(lambda death: not death.was_well, reversed(recent)))
    if in_a_row > policy.restarts:
        return GiveUp(f"it died {in_a_row} times within {policy.window_s:g} s")
    # The exponent is bounded as the delay is: 2 ** 1100 is no float.
    return Restart(min(policy.max_delay_s, policy.first_delay_s * 2.0 ** min(len(recent) - 1, MOST_DOUBLINGS)))


def say_exit(exit_code: int) -> str:
    """How a process ended, in words. A negative code is a signal, as `subprocess` has it."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
