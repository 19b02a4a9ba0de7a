"""A command that its guest refused to start, as a shell would tell of it. Pure.

Whatever the reason, it certainly did not run; so it is over, and its effect id stands for that. Whoever wants to try
again does it under another id. That holds for what is the machine's state too (no process or memory left, too much
runs): what waits for it is told at once what the matter is, and no effect stays begun that nobody will ever end.
"""

from outlive.base import OutliveError
from outlive.machine.command import Exit

NOT_FOUND = 127
CANNOT_BE_STARTED = 126

_NO_SUCH_PROGRAM = "machine.no_such_program"
# What a guest says before it has started anything. Of any other refusal nobody knows what it comes after.
_REFUSALS = frozenset(
    {
        _NO_SUCH_PROGRAM,
        "machine.not_started",
        "machine.no_directory",
        "machine.no_such_user",
        "machine.no_process",
        "machine.no_descriptors",
        "machine.too_many_commands",
        "machine.ledger_full",
        "machine.bad_request",
    }
)


def exit_of(refusal: OutliveError) -> Exit | None:
    """How a command ends whose start was answered with this; None if it does not say that nothing was started."""
    if refusal.code not in _REFUSALS:
        return None
    return Exit(
        reason="exited",
        code=NOT_FOUND if refusal.code == _NO_SUCH_PROGRAM else CANNOT_BE_STARTED,
        signal=None,
        stdout_size=0,
        stderr_size=0,
        stdout_cut=0,
        stderr_cut=0,
        seconds=0.0,
    )
