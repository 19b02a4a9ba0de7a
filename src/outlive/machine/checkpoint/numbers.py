"""Numbers and byte strings as short as they can be: LEB128, zigzag for signed ones. Pure.

Invariant: what was written is read back, and a reader never goes beyond its bytes: it raises `broken` instead.
"""

from outlive.base import BrokenError

_LONGEST = 10  # bytes of a number: 70 bits


class Writer:
    def __init__(self) -> None:
        self.content = bytearray()

    def number(self, value: int) -> None:
        assert value >= 0
        while value > 0x7F:
            self.content.append(value & 0x7F | 0x80)
            value >>= 7
        self.content.append(value)

    def signed(self, value: int) -> None:
        self.number(value << 1 if value >= 0 else (-value << 1) - 1)

    def text(self, value: bytes) -> None:
        self.number(len(value))
        self.content += value


class Reader:
    def __init__(self, content: bytes, what: str) -> None:
        self._content = content
        self._at = 0
        self._what = what

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)

    def number(self) -> int:
        value = shift = 0
        for byte in self._content[self._at : self._at + _LONGEST]:
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise self.damage("a number is cut off")

    def signed(self) -> int:
        value = self.number()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def text(self) -> bytes:
        return self.take(self.number())

    def take(self, length: int) -> bytes:
        found = self._content[self._at : self._at + length]
        if len(found) != length:
            raise self.damage("its end is missing")
        self._at += length
        return found

    def damage(self, why: str) -> BrokenError:
        return BrokenError("checkpoint.damaged", f"{self._what} is damaged: {why}.", object=self._what)
