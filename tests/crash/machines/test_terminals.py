"""The node killed while people and agents are at a terminal: what was acknowledged is so, what was typed gets in once,
and the record of who typed what is complete."""

import threading
import uuid
from collections.abc import Iterator

import pytest

from crash.machines.stacks import Answer, CrashStack, Facts
from eventually import eventually_sync
from outlive.base import CrashPoint

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("terminal_crash_points")]

CAT = ["/bin/sh", "-c", "stty -echo; echo ready; exec cat"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashStack]:
    with CrashStack(tmp_path_factory.mktemp("terminals")).running() as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


@pytest.fixture(scope="module")
def machine(stack: CrashStack) -> str:
    return str(stack.create()["id"])


@pytest.fixture(autouse=True)
def told(stack: CrashStack) -> Iterator[None]:
    with stack.trace.told_on_failure("what was done and seen"):
        yield
        stack.disarm()


def _open(stack: CrashStack, machine: str, key: str | None = None) -> str:
    body = {"argv": CAT}
    return str(stack.must(stack.ask("POST", f"/v1/machines/{machine}/terminals", body, key=key))["id"])


def _type(stack: CrashStack, terminal: str, text: str) -> Answer:
    return stack.ask("POST", f"/v1/terminals/{terminal}/input", {"data": text})


def _account(stack: CrashStack, terminal: str) -> Facts:
    return stack.must(stack.ask("GET", f"/v1/terminals/{terminal}/account"))


def _wait_for(stack: CrashStack, terminal: str, text: str) -> Facts:
    found: list[Facts] = []

    def is_there() -> bool:
        found[:] = [_account(stack, terminal)]
        return text in str(found[0]["text"])

    eventually_sync(is_there, 60.0, every_s=0.2)
    return found[0]


def test_a_terminal_is_opened_once_wherever_its_node_dies(stack: CrashStack, machine: str) -> None:
    key = uuid.uuid4().hex
    stack.arm(CrashPoint.TERMINAL_AFTER_OPEN)
    terminal = _open(stack, machine, key)
    assert not stack.is_armed(CrashPoint.TERMINAL_AFTER_OPEN)
    assert _open(stack, machine, key) == terminal
    listed = stack.must(stack.ask("GET", f"/v1/machines/{machine}/terminals"))["items"]
    assert [each["id"] for each in listed].count(terminal) == 1
    assert _wait_for(stack, terminal, "ready")["text"].count("ready") == 1


def test_what_was_typed_when_the_node_died_gets_in_once(stack: CrashStack, machine: str) -> None:
    terminal = _open(stack, machine)
    _wait_for(stack, terminal, "ready")
    stack.must(_type(stack, terminal, "first\n"))
    stack.arm(CrashPoint.TERMINAL_AFTER_JOURNAL)
    answer = _type(stack, terminal, "second\n")
    assert not stack.is_armed(CrashPoint.TERMINAL_AFTER_JOURNAL)
    assert (answer.status, answer.code) == (409, "terminal.outcome_unknown")
    stack.must(_type(stack, terminal, "third\n"))
    found = _wait_for(stack, terminal, "third")
    assert str(found["text"]).split() == ["ready", "first", "second", "third"]
    assert "".join(each["text"] for each in found["typed"]) == "first\nsecond\nthird\n"


def test_a_lease_that_was_taken_when_the_node_died_is_held(stack: CrashStack, machine: str) -> None:
    terminal = _open(stack, machine)
    stack.arm(CrashPoint.TERMINAL_AFTER_LEASE)
    taken = stack.must(stack.ask("POST", f"/v1/terminals/{terminal}/take", {}))
    assert not stack.is_armed(CrashPoint.TERMINAL_AFTER_LEASE)
    shown = stack.must(stack.ask("GET", f"/v1/terminals/{terminal}"))
    assert shown["lease"] == taken["lease"] is not None


def test_all_that_was_typed_and_printed_is_told_in_order_however_often_the_node_is_killed(
    stack: CrashStack, machine: str
) -> None:
    terminal = _open(stack, machine)
    _wait_for(stack, terminal, "ready")
    sent: dict[str, bool] = {}
    for number in range(40):
        killing = threading.Timer(0.004 * number, stack.kill, ["node"]) if number % 10 == 5 else None
        if killing is not None:
            killing.start()  # somewhere in the middle of what follows
        answer = _type(stack, terminal, f"line-{number}\n")
        sent[f"line-{number}"] = answer.status == 200
        assert answer.status == 200 or answer.code == "terminal.outcome_unknown", answer
        if killing is not None:
            killing.join()
    stack.wait_until_well()
    stack.must(_type(stack, terminal, "the-end\n"))
    found = _wait_for(stack, terminal, "the-end")
    printed = str(found["text"]).split()
    assert len(printed) == len(set(printed)), "nothing got in twice"
    assert {line for line, is_known in sent.items() if is_known} <= set(printed), "what was acknowledged got in"
    assert "".join(each["text"] for each in found["typed"]).split() == printed[1:], "and it is known who typed it"
    assert {each["name"] for each in found["typed"]} == {"owner"}
