"""What may be said on one stream, as one end of it sees it: credit, and how it ends. Pure; used by both ends.

Each direction starts with a credit of `WINDOW` bytes; who reads gives back what it has consumed, so a slow reader
stalls its own stream and nobody else's. Each end ends its direction exactly once, with END (no more from me) or RESET
(no more from me, and I drop what you still send). When both have, the guest says DONE and the id is free.
"""

from outlive.guest.wire import WireError

WINDOW = 128 * 1024


class Flow:
    def __init__(self) -> None:
        self.may_send = WINDOW
        self.has_ended = False  # this end said END or RESET
        self.is_ended = False  # the other end did
        self._may_come = WINDOW
        self._consumed = 0

    @property
    def is_over(self) -> bool:
        return self.has_ended and self.is_ended

    def send(self, size: int) -> None:
        if self.has_ended or size > self.may_send:
            raise ValueError("more than there is credit for")
        self.may_send -= size

    def take(self, size: int) -> None:
        """DATA has come."""
        if self.is_ended:
            raise WireError("DATA after the end")
        if size == 0 or size > self._may_come:
            raise WireError("DATA without credit")
        self._may_come -= size

    def consume(self, size: int) -> int:
        """So much of what came is used up. Says how much credit to give now: often none, then much at once."""
        self._consumed += size
        if self.is_ended or self._consumed < WINDOW // 2:
            return 0
        given, self._consumed = self._consumed, 0
        self._may_come += given
        return given

    def take_credit(self, size: int) -> None:
        if size > WINDOW - self.may_send:
            raise WireError("more CREDIT than was used")
        self.may_send += size

    def take_end(self) -> None:
        if self.is_ended:
            raise WireError("a stream ended twice")
        self.is_ended = True
