"""The guest's loop: what is ready comes before what is due, and time that was not lived through does not pass."""

import os
import time

import pytest

from outlive.guest.loop import Job, Loop


def test_timers_run_in_order_and_a_cancelled_one_never() -> None:
    loop, done = Loop(), list[str]()
    loop.after(0.02, lambda: done.append("late"))
    loop.after(0.01, lambda: done.append("never")).cancel()
    loop.after(0.0, lambda: done.append("early"))
    loop.after(0.03, loop.stop)
    loop.run()
    assert done == ["early", "late"]


def test_what_is_ready_is_read_before_what_is_due_is_done() -> None:
    loop, done = Loop(), list[str]()
    read, write = os.pipe()
    os.write(write, b"x")
    loop.after(0.0, lambda: done.append("due"))
    loop.after(0.0, loop.stop)
    loop.watch(read, read=lambda: done.append("read"))
    loop.run()
    os.close(read)
    os.close(write)
    assert done[:2] == ["read", "due"]


def test_time_that_was_slept_through_does_not_count() -> None:
    loop = Loop()
    before = loop.now()
    loop.skip(3600)
    assert loop.now() < before - 3500
    begun = time.monotonic()
    loop.after(0.01, loop.stop)
    loop.run()
    assert time.monotonic() - begun < 5


def test_a_fault_in_one_part_does_not_end_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    loop, done = Loop(), list[str]()

    def fail() -> None:
        raise LookupError("a fault of ours")

    def failing_job() -> Job:
        yield
        fail()

    loop.soon(fail)
    loop.add_job(failing_job())
    loop.after(0.0, fail)
    loop.after(0.01, lambda: done.append("alive"))
    loop.after(0.02, loop.stop)
    loop.run()
    assert done == ["alive"]
    assert capsys.readouterr().err.count("LookupError: a fault of ours") == 3


def test_jobs_take_turns() -> None:
    loop, done = Loop(), list[str]()

    def job(name: str) -> Job:
        for _ in range(3):
            done.append(name)
            yield
        if name == "b":
            loop.stop()

    loop.add_job(job("a"))
    loop.add_job(job("b"))
    loop.run()
    assert done == ["a", "b"] * 3


def test_many_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop()
    for _ in range(20_000):
        loop.after(600, lambda: None).cancel()
    assert len(loop._timers) < 3000


class JumpingClock:
    """Real time, which leaps when it is asked the `nth` time: the machine was saved and restored in between."""

    def __init__(self, nth: int, leap_s: float) -> None:
        self._nth, self._leap_s, self._asked = nth, leap_s, 0

    def __call__(self) -> float:
        self._asked += 1
        return time.monotonic() + (self._leap_s if self._asked >= self._nth else 0.0)


@pytest.mark.parametrize("nth", range(2, 12))
def test_while_the_host_is_away_a_leap_of_time_is_a_sleep_of_the_machine(nth: int) -> None:
    loop, done = Loop(JumpingClock(nth, 3600)), list[str]()
    loop.is_away = True
    loop.after(600, lambda: done.append("timed out"))
    ticks = 20

    def tick() -> None:
        nonlocal ticks
        ticks -= 1
        loop.after(0.001, tick if ticks else loop.stop)

    tick()
    loop.run()
    assert done == []
