"""What the guest says to the log file on the host. Bounded: no program in the machine may fill a disk with it."""

import sys

_MOST = 200
_LONGEST = 2000
_said = 0


def complain(text: str) -> None:
    global _said
    _said += 1
    if _said <= _MOST:
        sys.stderr.write(f"guest: {text[:_LONGEST]}\n")
    if _said == _MOST:
        sys.stderr.write("guest: no more of this is said\n")
