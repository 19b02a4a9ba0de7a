"""Group commit: appends that wait at the same moment share one transaction, and so one sync of the disk.

Rule 1: each caller gets its own answer. A refused append does not touch the others in its group; a transaction that
        fails fails them all.
Rule 2: what waits is bounded. Who comes when it is full waits for room, and gets `exhausted` when none comes in time.
Rule 3: nobody waits for ever: a transaction that does not end in time is no longer waited for.
Rule 4: a caller that goes away may find its append in the log or not; it asks again with the same key.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import anyio

from outlive.base import CrashPoint, DeadlineError, ExhaustedError, InvalidError, OutliveError, UnavailableError, reach
from outlive.conversation.events import MachineAttached
from outlive.conversation.log import Append, Appended

GROUP_LIMIT = 256  # appends in one transaction
GROUP_BYTES = 8 * 1024 * 1024
WAITING_LIMIT = 4_096  # appends that wait for their transaction
WAITING_BYTES = 64 * 1024 * 1024
PATIENCE_S = 10.0  # how long a caller waits for room
DEADLINE_S = 30.0  # how long a transaction may take before those who wait for it are told
_ROW_BYTES = 400  # about what an event takes besides its payload

Results = list[Appended | OutliveError]
Done = Callable[[Results | None, BaseException | None], None]
Start = Callable[[list[Append], Done], None]
"""Starts one transaction with these appends and returns at once; calls back, on the event loop, when it is over."""


class _Waiting(NamedTuple):
    append: Append
    size: int
    answer: "asyncio.Future[Appended]"


class GroupCommitter:
    """Collects appends and has them committed together, one transaction at a time.

    Calls back instead of running a task: a task would have to be woken twice for each append of a lone writer.
    """

    def __init__(self, start: Start, *, patience_s: float = PATIENCE_S) -> None:
        self._start = start
        self._patience_s = patience_s
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._running: list[_Waiting] = []
        self._is_busy = False  # a transaction runs, or begins before the event loop waits again
        self._is_closed = False
        self._room = anyio.Event()  # set, and replaced, when a group has left and somebody waits for that
        self._room_seekers = 0
        self._running_since = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def append(self, append: Append) -> Appended:
        _refuse_unstorable(append)
        size = sum(len(new.data_json) + _ROW_BYTES for new in append.events)
        if not self._has_room(size):
            await self._wait_for_room(size)
        if self._is_closed:
            raise UnavailableError("log.closed", "The log was closed.")
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(append, size, answer))
        self._waiting_bytes += size
        if not self._is_busy:
            self._commit_waiting()
        return await answer

    def close(self) -> None:
        """Nobody is left waiting. What is in a transaction just now may turn out to be in the log."""
        self._is_closed = True
        self._room.set()
        if self._watch is not None:
            self._watch.cancel()
        _refuse(
            [*self._running, *self._waiting],
            UnavailableError("log.closed", "The log was closed before this append was known to be durable."),
        )
        self._waiting.clear()

    def _commit_waiting(self) -> None:
        while group := self._take():
            self._running, self._is_busy = group, True
            self._watch_deadline()
            try:
                self._start([waiting.append for waiting in group], partial(self._answer, group))
            except OutliveError as error:
                _refuse(group, error)
            else:
                return
        self._running, self._is_busy = [], False

    def _watch_deadline(self) -> None:
        """One timer for all transactions, looked at when it rings: setting one for each would cost more than it."""
        loop = asyncio.get_running_loop()
        self._running_since = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(DEADLINE_S, self._check_deadline)

    def _check_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch = None
        if not self._running:
            return
        left_s = self._running_since + DEADLINE_S - loop.time()
        if left_s <= 0:
            left_s = DEADLINE_S
            late = DeadlineError("log.slow", f"The log did not answer within {DEADLINE_S} s.")
            _refuse([*self._running, *self._waiting], late)
        self._watch = loop.call_later(left_s, self._check_deadline)

    def _answer(self, group: list[_Waiting], results: Results | None, error: BaseException | None) -> None:
        if results is None:
            _refuse(group, error or UnavailableError("log.silent", "The transaction ended without a word."))
        else:
            reach(CrashPoint.LOG_AFTER_COMMIT)
            for waiting, result in zip(group, results, strict=True):
                if waiting.answer.done():  # its caller went away
                    continue
                if isinstance(result, Appended):
                    waiting.answer.set_result(result)
                else:
                    waiting.answer.set_exception(result)
        if self._waiting or len(group) > 1:
            # Those who were just answered may have their next append ready: it joins if it is given a moment.
            asyncio.get_running_loop().call_soon(self._commit_waiting)
        else:
            self._commit_waiting()

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < GROUP_LIMIT:
            if group and size + self._waiting[0].size > GROUP_BYTES:
                break
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.size
            if not waiting.answer.done():
                group.append(waiting)
                size += waiting.size
        if self._room_seekers:
            room, self._room = self._room, anyio.Event()
            room.set()
        return group

    def _has_room(self, size: int) -> bool:
        if not self._waiting:  # alone, even the biggest append may pass
            return True
        return len(self._waiting) < WAITING_LIMIT and self._waiting_bytes + size <= WAITING_BYTES

    async def _wait_for_room(self, size: int) -> None:
        self._room_seekers += 1
        try:
            with anyio.move_on_after(self._patience_s):
                while not self._has_room(size) and not self._is_closed:
                    await self._room.wait()
                return
        finally:
            self._room_seekers -= 1
        raise ExhaustedError(
            "log.busy", f"{len(self._waiting)} appends wait for the log; send fewer at once, or try again later."
        )


def _refuse_unstorable(append: Append) -> None:
    """Payloads are made storable when they are encoded; what stands in columns of its own must be too. Found out here,
    it cannot make the transaction of others fail."""
    text = f"{append.conversation}{append.key}{append.actor}{append.turn}"
    if append.writer is not None:
        text += append.writer.step
    for new in append.events:
        if isinstance(new.data, MachineAttached):
            text += new.data.machine
    try:
        is_storable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        is_storable = False
    if not is_storable:
        raise InvalidError("append.text", "Ids, keys and actors have no NUL and no lone surrogates.")


def _refuse(group: list[_Waiting], error: BaseException) -> None:
    for waiting in group:
        if waiting.answer.done():
            continue
        if isinstance(error, OutliveError):
            # An error of one's own for each: raising adds to an exception (its traceback), and many will raise it.
            own = type(error)(error.code, error.message, retry_after_s=error.retry_after_s, **error.facts)
            own.__cause__ = error
            waiting.answer.set_exception(own)
        else:
            waiting.answer.set_exception(error)
