"""How a stream is put together from chunks: runs of consecutive chunks of one maker, and runs of zeros. Pure.

A chunk has the number at which its **maker** (the checkpoint that stored it) stored it. Two checkpoints of a machine
mostly have the same pages in the same order, so a few runs say it all: 1 % of scattered pages changed is two runs for
each changed page, about four bytes each.
"""

from collections.abc import Iterator
from typing import NamedTuple

from outlive.machine.checkpoint.numbers import Reader, Writer


class Run(NamedTuple):
    maker: int  # its place in the manifest's list
    first: int
    chunks: int


class Zeros(NamedTuple):
    length: int


class LayoutWriter:
    """Takes chunk after chunk, and joins those that follow one another."""

    def __init__(self) -> None:
        self._writer = Writer()
        self._expected: dict[int, int] = {}
        self._maker = self._first = self._next = 0
        self._zeros = 0

    def chunk(self, maker: int, number: int) -> None:
        if number == self._next and maker == self._maker and not self._zeros:  # the usual case: one per page
            self._next += 1
            return
        self._flush()
        self._maker, self._first, self._next = maker, number, number + 1

    def zeros(self, length: int) -> None:
        if not self._zeros:
            self._flush()
        self._zeros += length

    def finish(self) -> bytes:
        self._flush()
        return bytes(self._writer.content)

    def _flush(self) -> None:
        """Write the run or the zeros that are under way: there is at most one of them."""
        if self._next > self._first:
            self._writer.number(self._maker + 1)
            self._writer.signed(self._first - self._expected.get(self._maker, 0))
            self._writer.number(self._next - self._first)
            self._expected[self._maker] = self._next
        elif self._zeros:
            self._writer.number(0)
            self._writer.number(self._zeros)
        self._first = self._next
        self._zeros = 0


def read_layout(content: bytes, what: str) -> Iterator[Run | Zeros]:
    reader = Reader(content, what)
    expected: dict[int, int] = {}
    while not reader.is_at_end:
        tag = reader.number()
        if tag == 0:
            yield Zeros(reader.number())
            continue
        first = expected.get(tag - 1, 0) + reader.signed()
        count = reader.number()
        if first < 0 or count < 1:
            raise reader.damage("a run is no run")
        expected[tag - 1] = first + count
        yield Run(tag - 1, first, count)
