"""Every armed point of exec, wake, hibernate and fork, and every process of a stack that may die there: a verb is asked
for, the process is killed when the node comes by the point, and the same is asked for again. It is done, once, and the
machine has its memory.

`make crash ARGS=points` plays all of it, `ARGS="points --only fork"` what has `fork` in its name; `make test` plays a
part (`USUAL`).
"""

import argparse
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from crash.machines.stacks import PROCESSES, CrashStack, Facts, append
from eventually import eventually_sync
from outlive.base import CrashPoint
from outlive.processes import proc

EXEC_POINTS = (
    CrashPoint.EXEC_AFTER_BEGIN,
    CrashPoint.EXEC_AFTER_START,
    CrashPoint.EXEC_BEFORE_RECORD,
    CrashPoint.EXEC_AFTER_RECORD,
)
UP_POINTS = (
    CrashPoint.UP_AFTER_BEGIN,
    CrashPoint.UP_AFTER_PREPARE,
    CrashPoint.UP_AFTER_START,
    CrashPoint.UP_AFTER_RECORD,
)
CHECKPOINT_POINTS = (
    CrashPoint.CHECKPOINT_AFTER_IMAGE,
    CrashPoint.CHECKPOINT_AFTER_STORE,
    CrashPoint.CHECKPOINT_AFTER_READY,
)
HIBERNATE_POINTS = (CrashPoint.HIBERNATE_BEFORE_RECORD, CrashPoint.HIBERNATE_AFTER_RECORD)
PASSED = {  # verb -> the points that it comes by, in this order
    "exec": EXEC_POINTS,
    "wake": UP_POINTS,
    "hibernate": (*CHECKPOINT_POINTS, *HIBERNATE_POINTS),
    "fork": (*CHECKPOINT_POINTS, *UP_POINTS),
}


class Case(NamedTuple):
    verb: str
    point: CrashPoint
    victim: str

    def __str__(self) -> str:
        return f"{self.verb}-{self.point}-{self.victim}"


MATRIX = tuple(Case(verb, point, victim) for victim in PROCESSES for verb, points in PASSED.items() for point in points)


def usual(matrix: Sequence[Case] = MATRIX) -> list[Case]:
    """The node at all of them, and at each of them one of the others. The API is one of four: whatever it was asked for
    can be taken over only when the lease of its key has run out, and that is waited for."""
    others = ("temporal", "worker", "api", "worker", "temporal")
    return [
        case for case in matrix if case.victim in ("node", others[PASSED[case.verb].index(case.point) % len(others)])
    ]


USUAL = usual()


def make_machine(stack: CrashStack) -> str:
    """A running machine that has something in its memory alone, and a line of one effect."""
    made = str(stack.create()["id"])
    stack.must(stack.exec(made, f"eff_{uuid.uuid4().hex}", f"echo memory > /tmp/kept; {append('first')}"))
    return made


class Machines:
    """One machine after the other is played with: whoever leaves it whole leaves it to the next."""

    def __init__(self, stack: CrashStack) -> None:
        self._stack = stack
        self._kept: str | None = None

    @contextmanager
    def one(self) -> Iterator[str]:
        machine, self._kept = self._kept or make_machine(self._stack), None
        try:
            yield machine
            self._kept = machine
        finally:
            self._stack.disarm()


def is_whole(stack: CrashStack, machine: str) -> bool:
    """Whether it has all that it had in its memory, and its first effect was done once. Wakes it."""
    shown = stack.must(stack.exec(machine, f"eff_{uuid.uuid4().hex}", "cat /tmp/kept; grep -x first ran"))
    return bool(shown["stdout"] == "memory\nfirst\n")


def play(stack: CrashStack, machine: str, case: Case) -> None:
    """With a machine that is running and whole; it is so again afterwards."""
    before, known = stack.look(machine), _names(stack)
    if case.verb == "wake":
        stack.must(stack.do(machine, "hibernate"))
    stack.wait_until_well()
    pid = stack.pid_of(case.victim)
    assert pid is not None
    stack.arm(case.point, pid)
    if case.verb == "exec":
        _exec(stack, machine, case, pid)
    else:
        key = uuid.uuid4().hex
        answer = stack.do(machine, case.verb, key)
        _died(stack, case, pid)
        again = stack.do(machine, case.verb, key)
        assert (again.status, again.code) == (answer.status, answer.code)
        _check(stack, machine, case.verb, stack.must(answer), stack.must(again))
    assert is_whole(stack, machine)
    assert _names(stack) == known, "more or less is there than was asked for"
    after = stack.settled(machine)
    assert after["state"] == "running"
    if case.verb == "wake":
        assert after["generation"] > before["generation"]


def _exec(stack: CrashStack, machine: str, case: Case, pid: int) -> None:
    effect = f"eff_{uuid.uuid4().hex}"
    first = stack.must(stack.exec(machine, effect, append(effect)))
    _died(stack, case, pid)
    assert stack.must(stack.exec(machine, effect, append(effect))) == first
    assert (first["outcome"], first["exit_code"]) == ("finished", 0)
    assert stack.lines(machine).count(effect) == 1


def _died(stack: CrashStack, case: Case, pid: int) -> None:
    assert not stack.is_armed(case.point), f"nothing came by {case.point}"
    eventually_sync(lambda: proc.find(pid) is None)


def _check(stack: CrashStack, machine: str, verb: str, answer: Facts, again: Facts) -> None:
    match verb:
        case "wake":
            assert (answer["id"], again["id"]) == (machine, machine)
        case "hibernate":
            assert answer["state"] == "hibernated"
            assert stack.settled(machine)["state"] == "hibernated"
            eventually_sync(lambda: stack.living(machine) == [], 30.0, every_s=0.1)
        case "fork":
            child = str(answer["id"])
            assert again["id"] == child != machine
            assert is_whole(stack, child)
            assert len(stack.living(child)) == 1
            stack.must(stack.do(child, "delete"))


def _names(stack: CrashStack) -> set[str]:
    listed = stack.must(stack.ask("GET", "/v1/machines?limit=1000"))["items"]
    return {str(each["id"]) for each in listed}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="make crash ARGS=points", description="Each process killed at each armed point of what machines do."
    )
    parser.add_argument("--only", default="", help="cases with this in their name, `fork` or `hibernate.after` say")
    given = parser.parse_args(arguments)
    cases = [case for case in MATRIX if given.only in str(case)]
    wrong: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="outlive-crash-") as folder, CrashStack(Path(folder)).running() as stack:
        machines = Machines(stack)
        for number, case in enumerate(cases, 1):
            began = time.monotonic()
            try:
                with stack.trace.told_on_failure(str(case)), machines.one() as machine:
                    play(stack, machine, case)
            except AssertionError:
                wrong.append(case)
                traceback.print_exc()
            took_s = time.monotonic() - began
            said = "wrong" if case in wrong else "as it should be"
            print(f"{number:4}/{len(cases)}  {case!s:<45} {took_s:5.1f} s  {said}", flush=True)
        stack.down()
    print(f"{len(cases)} cases, {len(wrong)} wrong: {', '.join(map(str, wrong)) or 'none'}", flush=True)
    if wrong:
        raise SystemExit(1)
