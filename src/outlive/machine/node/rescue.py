"""The tries to save the disk of a machine whose sandbox ended: when the next one is due, and when it is given up.

Rule 1: what can be mended from outside (the object store, the database, room) is waited for, however long it takes: the
        disk is all there is of what was done since the last checkpoint. Whoever does not want it deletes the machine.
Rule 2: a disk that cannot be read is given up after `DISK_TRIES`, and so is one whose checkpoint is damaged whenever it
        is read back; what no further try can mend, at once.
Rule 3: each wait is as long as all before it together, up to a bound, and a checkpoint that was begun is gone on with
        while it may be: a store that stays away is neither flooded with tries nor are the records.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from outlive.base import BrokenError, OutliveError
from outlive.machine.checkpoint import Saved
from outlive.machine.status import Checkpoint

DISK_TRIES = 5
_FIRST_WAIT_S = 10.0
_LONGEST_WAIT_S = 1_800.0
_LEFT_AT_LEAST = timedelta(minutes=15)  # of the time that a checkpoint may take; else another one is begun

# The checkpoint that was begun is of no use any more: it was stored and nobody was told, or its time was over.
_BEGIN_ANEW = frozenset({"checkpoint.exists", "checkpoint.unknown"})


def wait_before_next(error: OutliveError, tries: int) -> float | None:
    """Seconds, after so many tries of which the last ended with this; None: no further try. Pure."""
    is_doubtful = error.code == "checkpoint.disk" or isinstance(error, BrokenError)
    is_outside = error.is_retryable or error.kind == "exhausted" or error.code.startswith(("objects.", "storage."))
    if (is_doubtful and tries >= DISK_TRIES) or not (is_doubtful or is_outside or error.code in _BEGIN_ANEW):
        return None
    return min(_FIRST_WAIT_S * 2.0 ** min(tries - 1, 16), _LONGEST_WAIT_S)


@dataclass
class Rescue:
    """Of one disk."""

    tries: int = 0
    due_at: float = 0.0
    begun: dict[bool, Checkpoint] = field(default_factory=dict)  # by whether it shares with its parent
    stored: dict[bool, Saved] = field(default_factory=dict)

    def going_on(self, shares: bool, now: datetime) -> Checkpoint | None:
        """The checkpoint that an earlier try has begun, if there is time left for it."""
        begun = self.begun.get(shares)
        return begun if begun is not None and begun.deadline_at - now >= _LEFT_AT_LEAST else None

    def begin(self, shares: bool, begun: Checkpoint) -> None:
        self.begun[shares] = begun
        self.stored.pop(shares, None)

    def note(self, error: OutliveError, now_s: float) -> bool:
        """A try has failed. Whether there is another one."""
        self.tries += 1
        if error.code in _BEGIN_ANEW or isinstance(error, BrokenError):
            self.begun.clear()
            self.stored.clear()
        wait_s = wait_before_next(error, self.tries)
        self.due_at = now_s + (wait_s or 0.0)
        return wait_s is not None
