"""Everybody who is attached to one terminal: what all are told, who has fallen behind, and what of the output in memory
somebody still needs."""

import anyio
import anyio.abc

from outlive.base import ExhaustedError, PrincipalId
from outlive.machine.node.terminals.observer import BEHIND_LIMIT, Observer
from outlive.machine.node.terminals.tail import SPARE, Tail
from outlive.machine.terminal import frames
from outlive.machine.terminal.door import Present
from outlive.machine.terminal.frames import Frame
from outlive.machine.terminal.marks import FoundMark

OBSERVERS_LIMIT = 512
TOLD_LIMIT = 64  # operators that are named to each other
_TELL_EVERY_S = 0.05
_LEAD_LIMIT = 1024 * 1024  # of what is printed, before the nearest of those who watch
_LEAD_WAIT_S = 0.05  # for each piece: whoever takes longer falls behind, and is let go in the end


class Audience:
    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._is_telling = False
        self._moved = anyio.Event()

    @property
    def present(self) -> tuple[Present, ...]:
        return tuple(observer.present for observer in self._observers)

    def check_room(self) -> None:
        if len(self._observers) >= OBSERVERS_LIMIT:
            raise ExhaustedError("terminal.crowded", f"{OBSERVERS_LIMIT} are attached to this terminal.")

    def join(self, observer: Observer) -> None:
        self._observers.append(observer)

    def leave(self, observer: Observer) -> bool:
        """Whether it was still here."""
        is_here = observer in self._observers
        if is_here:
            self._observers.remove(observer)
        return is_here

    def is_here_to_type(self, operator: PrincipalId) -> bool:
        return any(each.mode == "type" and each.operator.id == operator for each in self._observers)

    def sized_by(self, operator: PrincipalId) -> Observer | None:
        """One of this operator that has said how large its window is."""
        return next((each for each in self._observers if each.operator.id == operator and each.size is not None), None)

    # ── what they are told ──

    def say(self, payload: bytes) -> None:
        for observer in self._observers:
            observer.say(payload)

    def say_at(self, offset: int, payload: bytes) -> None:
        for observer in self._observers:
            observer.say_at(offset, payload)

    def finish(self, *last: Frame) -> None:
        for observer in self._observers:
            observer.finish(*last)

    def send_away(self, payload: bytes) -> None:
        for observer in self._observers:
            observer.leave(payload)

    def tell_who_is_here(self, tasks: anyio.abc.TaskGroup | None) -> None:
        """Soon, and once for many who come at the same time."""
        if not self._is_telling and tasks is not None:
            self._is_telling = True
            tasks.start_soon(self._tell_soon)

    async def _tell_soon(self) -> None:
        await anyio.sleep(_TELL_EVERY_S)
        self._is_telling = False
        self.say(frames.status_operators(self.present[:TOLD_LIMIT]))

    # ── the output ──

    def show(self, tail: Tail, found: list[FoundMark]) -> None:
        """Something has come. Who is too far behind is let go."""
        for mark in found:
            if mark.kind == "title":
                self.say_at(mark.end, frames.status_title(mark.text))
            elif mark.kind == "bell":
                self.say_at(mark.end, frames.status_bell())
        for observer in self._observers:
            if observer.is_live and tail.end - observer.position > BEHIND_LIMIT:
                observer.leave_slow()
            else:
                observer.wake()
        self.trim(tail)

    def moved(self) -> None:
        """One of them was sent something."""
        self._moved.set()

    async def keep_pace(self, tail: Tail) -> None:
        """What prints faster than anybody can watch waits a moment for the nearest of them, and for no other."""
        if self._lead(tail) <= _LEAD_LIMIT:
            return
        with anyio.move_on_after(_LEAD_WAIT_S):
            while self._lead(tail) > _LEAD_LIMIT:
                self._moved = anyio.Event()
                await self._moved.wait()

    def _lead(self, tail: Tail) -> int:
        return min((tail.end - each.position for each in self._observers if each.is_live), default=0)

    def trim(self, tail: Tail) -> None:
        spare = SPARE if self._observers else 0
        if tail.end - tail.start > 2 * spare:
            live = [observer.position for observer in self._observers if observer.is_live]
            tail.trim(min(live, default=tail.end) - spare)
