"""The newest output of a terminal in memory, shared by all who watch it. Pure.

Rule 1: one copy, however many watch: each has a position of its own in it.
Rule 2: it holds what somebody who is live has still to be sent, and a little more; without anybody watching, nothing.
        What is older is read from the journal.
"""

from collections import deque

SPARE = 64 * 1024  # kept behind the slowest one, so that who comes from the journal finds its way in
_SMALL = 4 * 1024  # a piece that is shorter grows: what is typed comes back byte by byte


class Tail:
    def __init__(self, offset: int) -> None:
        self.start = self.end = offset
        self._pieces: deque[bytes] = deque()

    def append(self, data: bytes) -> None:
        self.end += len(data)
        if self._pieces and len(self._pieces[-1]) < _SMALL:
            self._pieces[-1] += data
        else:
            self._pieces.append(data)

    def jump(self, offset: int) -> None:
        """It goes on elsewhere: nothing that was here is beside what comes."""
        self._pieces.clear()
        self.start = self.end = offset

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, which must be held."""
        if not self.start <= offset <= self.end:
            raise ValueError(f"{offset} is not held")
        # Whoever watches is nearly always at the end of it: so it is looked for from there.
        at, wanted = self.end, []
        for piece in reversed(self._pieces):
            at -= len(piece)
            wanted.append(piece)
            if at <= offset:
                break
        skipped, taken, parts = offset - at, 0, []
        for piece in reversed(wanted):
            part = piece[skipped : skipped + limit - taken]
            skipped = max(0, skipped - len(piece))
            parts.append(part)
            taken += len(part)
            if taken >= limit:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def trim(self, offset: int) -> None:
        """What is before `offset` is not needed any more. Whole pieces go."""
        while self._pieces and self.start + len(self._pieces[0]) <= offset:
            self.start += len(self._pieces.popleft())
