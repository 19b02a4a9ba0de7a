"""The end of a process group.

gVisor looks up who is in a group and then signals them one by one: a process that is being born meanwhile is missed,
and a fork bomb goes on by it. So the group is sent SIGKILL again until nobody is in it. While somebody is, its number
is given to nobody else.
"""

import os
import signal
from contextlib import suppress

from outlive.guest.loop import Loop
from outlive.guest.processes import all_pids

_AGAIN_S = 0.01
_TIMES = 500  # what does not die within five seconds hangs in the kernel, and has its signal


def end_group(loop: Loop, group: int, times: int = _TIMES) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # the latter where the guest is not root
        return
    if times > 1:
        loop.after(_AGAIN_S, lambda: end_group(loop, group, times - 1))


def is_in_session(group: int, session: int) -> bool:
    """Whether somebody is in this group, and it is of this session: so its number stands for no other by now."""
    for pid in (group, *all_pids()):  # its first process may be gone
        with suppress(OSError, OverflowError):
            if os.getpgid(pid) == group:
                return os.getsid(pid) == session
    return False
