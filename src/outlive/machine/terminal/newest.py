"""The newest of a terminal, as its node hands it over: what of its journal is not in the object store yet. Pure.

So whoever only looks makes no segment: together with the store this is all of the recording.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from outlive.base import TerminalId
from outlive.machine.terminal.status import Terminal

HELD_LIMIT = 1024 * 1024  # bytes of journals that are handed over; more goes to the object store first


class HeldSegment(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    n: int = Field(ge=1)
    content: bytes  # of its journal, up to now


class Newest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    terminal: Terminal
    offset: int  # of the next byte of output
    held: tuple[HeldSegment, ...] = ()  # in order


class HandedOver:
    """A `LocalJournal` of what a node has handed over."""

    def __init__(self, newest: Newest) -> None:
        self._newest = newest
        self._contents = {segment.n: segment.content for segment in newest.held}

    @property
    def terminal(self) -> TerminalId:
        return self._newest.terminal.id

    def sealed(self) -> Sequence[int]:
        return []

    def numbers(self, start: int = 0) -> Sequence[int]:
        return list(self._contents)

    def content(self, n: int) -> bytes | None:
        return self._contents.get(n)

    def forget(self, n: int) -> None:
        """It is not ours."""
