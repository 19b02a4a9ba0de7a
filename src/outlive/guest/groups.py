"""The end of a process group.

gVisor looks up who is in a group and then signals them one by one: a process that is being born meanwhile is missed,
and a fork bomb goes on by it. So the group is sent SIGKILL again until nobody is in it. While somebody is, its number
is given to nobody else.
"""

import os
import signal

from outlive.guest.loop import Loop

_AGAIN_S = 0.01
_TIMES = 500  # what does not die within five seconds hangs in the kernel, and has its signal


def end_group(loop: Loop, group: int, times: int = _TIMES) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    if times > 1:
        loop.after(_AGAIN_S, lambda: end_group(loop, group, times - 1))
