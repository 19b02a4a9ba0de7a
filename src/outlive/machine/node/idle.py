"""When a machine is idle, and what follows. Pure.

Idle: no command runs, nobody is attached, nothing was printed and nothing was asked for a while. Services and shells
that only wait do not keep a machine awake: freezing them costs nothing and the first who asks thaws them.
"""

from typing import Literal, NamedTuple

IdleStep = Literal["stay", "freeze", "hibernate"]


class IdlePolicy(NamedTuple):
    """Seconds of idleness. None: never."""

    freeze_after_s: float | None = 30.0
    hibernate_after_s: float | None = 600.0


class Activity(NamedTuple):
    commands: int  # that run, in the background too
    attached: int  # operators, previews, transfers
    quiet_s: float  # since the last output, the last request, the last end of a command
    is_frozen: bool  # because it was idle
    is_halted: bool  # by a person: not ours to touch


def decide_idle(activity: Activity, policy: IdlePolicy) -> IdleStep:
    if activity.is_halted or activity.commands or activity.attached:
        return "stay"
    if policy.hibernate_after_s is not None and activity.quiet_s >= policy.hibernate_after_s:
        return "hibernate"
    if policy.freeze_after_s is not None and not activity.is_frozen and activity.quiet_s >= policy.freeze_after_s:
        return "freeze"
    return "stay"
