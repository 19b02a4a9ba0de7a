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
    """The newest `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def append(self, data: bytes | memoryview) -> None:
        super().append(data)
        self.let_go(self.end - self._size)
