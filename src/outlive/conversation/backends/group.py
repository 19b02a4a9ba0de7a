"""Group commit: appends that wait at the same moment share one transaction, and so one sync of the disk.

Rule 1: each caller gets its own answer. A refused append does not touch the others in its group; a transaction that
        fails fails them all.
Rule 2: what waits is bounded. Who comes when it is full waits for room, and gets `exhausted` when none comes in time.
Rule 3: a caller that goes away may find its append in the log or not; it asks again with the same key.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from outlive.base import CrashPoint, ExhaustedError, InvalidError, OutliveError, UnavailableError, reach
from outlive.conversation.events import MachineAttached
from outlive.conversation.log import Append, Appended

GROUP_LIMIT = 256  # appends in one transaction
GROUP_BYTES = 8 * 1024 * 1024
WAITING_LIMIT = 4_096  # appends that wait for their transaction
WAITING_BYTES = 64 * 1024 * 1024
PATIENCE_S = 10.0  # how long a caller waits for room
_ROW_BYTES = 400  # about what an event takes besides its payload

CommitGroup = Callable[[list[Append]], Awaitable[list[Appended | OutliveError]]]


class _Waiting(NamedTuple):
    append: Append
    size: int
    answer: "asyncio.Future[Appended]"


class GroupCommitter:
    """Collects appends and has them committed together. `run` is the one loop that commits; its owner runs it."""

    def __init__(self, commit_group: CommitGroup, *, patience_s: float = PATIENCE_S) -> None:
        self._commit_group = commit_group
        self._patience_s = patience_s
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._is_closed = False
        self._arrival: asyncio.Future[None] | None = None  # the loop waits for it
        self._room = anyio.Event()  # set, and replaced, whenever a group has left

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
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return await answer

    async def run(self) -> None:
        """Commit what comes, until cancelled; then nobody is left waiting."""
        group: list[_Waiting] = []
        try:
            while True:
                if not self._waiting:
                    self._arrival = asyncio.get_running_loop().create_future()
                    await self._arrival
                group = self._take()
                if group:
                    await self._commit(group)
        finally:
            self._is_closed = True
            self._room.set()
            closed = UnavailableError("log.closed", "The log was closed before this append was known to be durable.")
            _refuse([*group, *self._waiting], closed)
            self._waiting.clear()

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            results = await self._commit_group([waiting.append for waiting in group])
        except OutliveError as error:
            _refuse(group, error)
            return
        reach(CrashPoint.LOG_AFTER_COMMIT)
        for waiting, result in zip(group, results, strict=True):
            if waiting.answer.done():  # its caller went away
                continue
            if isinstance(result, Appended):
                waiting.answer.set_result(result)
            else:
                waiting.answer.set_exception(result)

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
        room, self._room = self._room, anyio.Event()
        room.set()
        return group

    def _has_room(self, size: int) -> bool:
        if not self._waiting:  # alone, even the biggest append may pass
            return True
        return len(self._waiting) < WAITING_LIMIT and self._waiting_bytes + size <= WAITING_BYTES

    async def _wait_for_room(self, size: int) -> None:
        with anyio.move_on_after(self._patience_s):
            while not self._has_room(size) and not self._is_closed:
                await self._room.wait()
            return
        raise ExhaustedError(
            "log.busy", f"{len(self._waiting)} appends wait for the log; send fewer at once, or try again later."
        )


def _refuse_unstorable(append: Append) -> None:
    """Payloads are ASCII; but what stands in columns of its own must be text that every database takes. Found out here,
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


def _refuse(group: list[_Waiting], error: OutliveError) -> None:
    for waiting in group:
        if not waiting.answer.done():
            # An error of one's own for each: raising adds to an exception (its traceback), and many will raise it.
            own = type(error)(error.code, error.message, retry_after_s=error.retry_after_s, **error.facts)
            own.__cause__ = error
            waiting.answer.set_exception(own)
