"""Bytes with offsets from birth. Pure: what is kept of a program's output, and how much."""


class Kept:
    """What was appended and not yet let go: from `start` up to `end`."""

    def __init__(self) -> None:
        self.start = 0
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def end(self) -> int:
        return self.start + len(self._bytes)

    def append(self, data: bytes | memoryview) -> None:
        self._bytes += data

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`, which must not be before `start`."""
        if offset < self.start:
            raise ValueError(f"{offset} is no longer kept")
        at = offset - self.start
        return bytes(self._bytes[at : at + size])

    def let_go(self, offset: int) -> int:
        """Drop what is before `offset`; says how many bytes that was."""
        dropped = min(max(0, offset - self.start), len(self._bytes))
        del self._bytes[:dropped]
        self.start += dropped
        return dropped


class Ring(Kept):
    """The newest `size` bytes; and once there is a recorder, no byte is dropped that it has not acknowledged."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._acknowledged: int | None = None  # up to here; None while nobody records

    @property
    def room(self) -> int:
        """So much may be appended now: all that fits when nobody records."""
        return self._size if self._acknowledged is None else max(0, self._size - (self.end - self._acknowledged))

    def append(self, data: bytes | memoryview) -> None:
        super().append(data)
        droppable = self.end - self._size
        self.let_go(droppable if self._acknowledged is None else min(droppable, self._acknowledged))

    def record_from(self, offset: int) -> None:
        """Somebody records what comes from `offset` on, which must be held: from now on that waits for it."""
        self._acknowledged = offset

    def acknowledge(self, offset: int) -> None:
        """What is before `offset` is safe. One that is behind, or ahead of what was printed, changes nothing."""
        if self._acknowledged is not None and self._acknowledged < offset <= self.end:
            self._acknowledged = offset

    def record_no_more(self) -> None:
        self._acknowledged = None
