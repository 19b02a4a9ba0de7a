"""The one thread of the guest: descriptors, timers, children and long work in slices, around one epoll.

Rule 1: nothing in a callback waits. What takes long (a big tree, a big file) is a generator that gives way often.
Rule 2: what is ready is read before what is due is done, so that a word from the host ("you were frozen for an hour")
counts before a timer does.
Rule 3: time that the machine did not live through does not pass (`now`): a command's timeout is a time of running.
"""

import errno
import heapq
import itertools
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress

from outlive.guest.complaints import complain

Callback = Callable[[], None]
Job = Generator[None, None, None]

_GAP_S = 1.0  # a poll that comes back so much late while the host is away: the machine was not there
_LATE_S = 0.2  # so much later than its time a timer waits for the host's word
_WORD_S = 0.05
_COMPACT_AT = 1024
_READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP
_WRITE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR


class Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._masks: dict[int, int] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._compact_at = _COMPACT_AT
        self._order = itertools.count()
        self._soon: deque[Callback] = deque()
        self._jobs: deque[Job] = deque()
        self._seen = clock()
        self._lived_s = 0.0
        self._is_running = False
        self.is_away = False  # the host is: polls are short then, and a long one was a sleep of the whole machine
        self.on_child: Callback = lambda: None

    def now(self) -> float:
        """Seconds that this machine has lived through, as of this turn.

        Read once a turn, in one place: a machine may be saved between any two lines and go on a week later, and then
        no timer may be set from a time on the one side and looked at from the other.
        """
        return self._lived_s

    def skip(self, seconds: float) -> None:
        """The machine stood still for so long."""
        self._lived_s -= seconds

    def watch(self, descriptor: int, read: Callback | None = None, write: Callback | None = None) -> None:
        """From now on these two (and only these) are called when the descriptor is ready."""
        for table, callback in ((self._readers, read), (self._writers, write)):
            if callback is None:
                table.pop(descriptor, None)
            else:
                table[descriptor] = callback
        mask = (select.EPOLLIN | select.EPOLLRDHUP if read else 0) | (select.EPOLLOUT if write else 0)
        before = self._masks.get(descriptor)
        if mask == before:
            return
        if not mask:
            # Taken out altogether: a hang-up is reported even to those who asked for nothing, for ever.
            if before is not None:
                del self._masks[descriptor]
                self._epoll.unregister(descriptor)
            return
        self._masks[descriptor] = mask
        if before is None:
            self._epoll.register(descriptor, mask)
        else:
            self._epoll.modify(descriptor, mask)

    def forget(self, descriptor: int) -> None:
        """Call before closing a descriptor."""
        self.watch(descriptor)

    def after(self, seconds: float, callback: Callback) -> Timer:
        timer = Timer(callback)
        if len(self._timers) > self._compact_at:  # most timeouts are cancelled long before they are due
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._compact_at = max(_COMPACT_AT, 2 * len(self._timers))
        heapq.heappush(self._timers, (self.now() + seconds, next(self._order), timer))
        return timer

    def soon(self, callback: Callback) -> None:
        self._soon.append(callback)

    def add_job(self, job: Job) -> None:
        self._jobs.append(job)

    def drop_job(self, job: Job) -> None:
        """End a job where it stands; its `finally` cleans up."""
        if job in self._jobs:
            self._jobs.remove(job)
        job.close()

    def stop(self) -> None:
        self._is_running = False

    def run(self) -> None:
        self._is_running = True
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(wake_read, read=lambda: self._reap(wake_read))
        try:
            self.on_child()
            while self._is_running:
                self._turn()
        finally:
            signal.signal(signal.SIGCHLD, handler)
            signal.set_wakeup_fd(before)
            self.forget(wake_read)
            os.close(wake_read)
            os.close(wake_write)

    def _reap(self, wake_read: int) -> None:
        with suppress(BlockingIOError):
            os.read(wake_read, 4096)
        self.on_child()

    def _turn(self) -> None:
        for descriptor, events in self._poll():
            # A callback may have closed what comes later in the list: then nobody is called.
            if events & _READ and (callback := self._readers.get(descriptor)) is not None:
                _call(callback)
            if events & _WRITE and (callback := self._writers.get(descriptor)) is not None:
                _call(callback)
        self._run_due()
        for _ in range(len(self._soon)):
            _call(self._soon.popleft())
        if self._jobs:
            _call(self._step)

    def _step(self) -> None:
        job = self._jobs.popleft()
        if next(job, StopIteration) is not StopIteration:
            self._jobs.append(job)

    def _look_at_clock(self, expected_s: float) -> float:
        """Count the time since the last look; how much of it was not expected."""
        now = self._clock()
        elapsed, self._seen = now - self._seen, now
        if self.is_away and elapsed > expected_s + _GAP_S:
            elapsed = expected_s
        self._lived_s += elapsed
        return elapsed - expected_s

    def _poll(self) -> list[tuple[int, int]]:
        self._look_at_clock(0.0)
        timeout = -1.0
        if self._soon or self._jobs:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - self.now())
        ready = self._ready(timeout)
        late_s = self._look_at_clock(max(timeout, 0.0))
        if timeout >= 0 and late_s > _LATE_S and not self.is_away:
            # Perhaps the machine was frozen. The host has said for how long, but a timer or the end of a child may
            # wake us a moment before its word is here.
            time.sleep(_WORD_S)
            ready = self._ready(0.0)
            self._look_at_clock(0.0)
        return ready

    def _ready(self, timeout: float) -> list[tuple[int, int]]:
        try:
            return self._epoll.poll(timeout)
        except OSError as error:
            if error.errno != errno.EINTR:
                raise
            return []

    def _run_due(self) -> None:
        now = self.now()
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].callback is None):
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                _call(timer.callback)


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception as error:  # noqa: BLE001  # the end of PID 1 is the end of the machine, and of all that runs in it
        import traceback  # not at the start: it is dear, and hardly ever needed

        complain("".join(traceback.format_exception(error)))
