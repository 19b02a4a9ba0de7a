"""The node killed at every armed point of a machine's life. Asked again with the same key, what was asked for is so: a
command ran once, a machine is whole or its history says what is gone, and nothing is left on the host."""

import uuid
from collections.abc import Iterator

import pytest

from crash.machines.stacks import Answer, CrashStack, Facts, append
from outlive.base import CrashPoint

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("machine_crash_points")]

EXEC_POINTS = [
    CrashPoint.EXEC_AFTER_BEGIN,
    CrashPoint.EXEC_AFTER_START,
    CrashPoint.EXEC_BEFORE_RECORD,
    CrashPoint.EXEC_AFTER_RECORD,
]
UP_POINTS = [
    CrashPoint.UP_AFTER_BEGIN,
    CrashPoint.UP_AFTER_PREPARE,
    CrashPoint.UP_AFTER_START,
    CrashPoint.UP_AFTER_RECORD,
]
CHECKPOINT_POINTS = [
    CrashPoint.CHECKPOINT_AFTER_IMAGE,
    CrashPoint.CHECKPOINT_AFTER_STORE,
    CrashPoint.CHECKPOINT_AFTER_READY,
]
HIBERNATE_POINTS = [CrashPoint.HIBERNATE_BEFORE_RECORD, CrashPoint.HIBERNATE_AFTER_RECORD]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashStack]:
    """One for all of this file; at its end it is taken down as a user does, with nothing left."""
    with CrashStack(tmp_path_factory.mktemp("points")).running() as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


@pytest.fixture
def machine(stack: CrashStack) -> Iterator[str]:
    """A running machine that has something in its memory alone, and a line of one effect."""
    with stack.trace.told_on_failure("what was done and seen"):
        made = str(stack.create()["id"])
        stack.must(stack.exec(made, f"eff_{uuid.uuid4().hex}", f"echo memory > /tmp/kept; {append('first')}"))
        yield made
        stack.disarm()
        stack.do(made, "delete")


def _died_at(stack: CrashStack, point: CrashPoint) -> None:
    assert not stack.is_armed(point), f"nothing came by {point}"


def _check_whole(stack: CrashStack, machine: str) -> Facts:
    """Settled, and with all that it had in its memory."""
    found = stack.settled(machine)
    shown = stack.must(stack.exec(machine, f"eff_{uuid.uuid4().hex}", "cat /tmp/kept ran"))
    assert shown["stdout"] == "memory\nfirst\n"
    return found


@pytest.mark.parametrize("point", EXEC_POINTS)
def test_a_command_runs_once_wherever_its_node_dies(stack: CrashStack, machine: str, point: CrashPoint) -> None:
    effect = f"eff_{uuid.uuid4().hex}"
    stack.arm(point)
    first = stack.must(stack.exec(machine, effect, append(effect)))
    _died_at(stack, point)
    again = stack.must(stack.exec(machine, effect, append(effect)))
    assert again == first
    assert (first["outcome"], first["exit_code"]) == ("finished", 0)
    assert stack.lines(machine) == ["first", effect]


@pytest.mark.parametrize("point", [CrashPoint.EXEC_AFTER_BEGIN, CrashPoint.EXEC_BEFORE_RECORD])
def test_a_command_is_typed_into_a_terminal_once_wherever_its_node_dies(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    terminal = stack.must(stack.ask("POST", f"/v1/machines/{machine}/terminals", {}))["id"]
    effect, path = f"eff_{uuid.uuid4().hex}", f"/v1/terminals/{terminal}/run"
    body = {"command": append(effect), "effect_id": effect}
    stack.arm(point)
    first = stack.must(stack.ask("POST", path, body))
    _died_at(stack, point)
    assert stack.must(stack.ask("POST", path, body)) == first
    assert (first["outcome"], first["exit_code"]) == ("finished", 0)
    assert stack.lines(machine) == ["first", effect]


@pytest.mark.parametrize("point", UP_POINTS)
def test_a_machine_that_is_made_comes_up_once_wherever_its_node_dies(stack: CrashStack, point: CrashPoint) -> None:
    key = uuid.uuid4().hex
    stack.arm(point)
    with stack.trace.told_on_failure("what was done and seen"):
        made = stack.create(key)
        _died_at(stack, point)
        again = stack.create(key)
        assert (made["id"], made["state"], again["id"]) == (again["id"], "running", made["id"])
        assert stack.lines(made["id"]) == []
        # As when it was made: what has begun and died was another generation, of which nothing ran.
        assert [event["kind"] for event in stack.history(made["id"])].count("booted") == 1
        stack.must(stack.do(made["id"], "delete"))


@pytest.mark.parametrize("point", UP_POINTS)
def test_a_machine_that_wakes_has_its_memory_wherever_its_node_dies(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    stack.must(stack.do(machine, "hibernate"))
    before = stack.look(machine)
    key = uuid.uuid4().hex
    stack.arm(point)
    woken = stack.must(stack.do(machine, "wake", key))
    _died_at(stack, point)
    assert stack.must(stack.do(machine, "wake", key))["id"] == woken["id"]
    assert _check_whole(stack, machine)["generation"] > before["generation"]


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
def test_a_machine_goes_on_wherever_its_node_dies_while_it_is_saved(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    key, before = uuid.uuid4().hex, stack.look(machine)
    stack.arm(point)
    saved = stack.must(stack.do(machine, "checkpoint", key))
    _died_at(stack, point)
    assert stack.must(stack.do(machine, "checkpoint", key)) == saved
    after = _check_whole(stack, machine)
    assert (after["generation"], after["state"]) == (before["generation"], "running")
    assert saved["id"] in {each["id"] for each in stack.home.get(f"/v1/machines/{machine}/checkpoints")["items"]}


@pytest.mark.parametrize("point", [CrashPoint.CHECKPOINT_AFTER_STORE, *HIBERNATE_POINTS])
def test_a_machine_that_hibernates_loses_nothing_wherever_its_node_dies(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    key = uuid.uuid4().hex
    stack.arm(point)
    answer = stack.do(machine, "hibernate", key)
    _died_at(stack, point)
    assert _same_verdict(answer, stack.do(machine, "hibernate", key))
    assert stack.must(answer)["state"] == "hibernated"
    assert stack.settled(machine)["state"] == "hibernated"
    _check_whole(stack, machine)


@pytest.mark.parametrize("point", [CrashPoint.CHECKPOINT_AFTER_STORE, CrashPoint.UP_AFTER_START])
def test_a_fork_is_made_once_with_the_memory_wherever_its_node_dies(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    key = uuid.uuid4().hex
    stack.arm(point)
    child = stack.must(stack.do(machine, "fork", key))
    _died_at(stack, point)
    assert stack.must(stack.do(machine, "fork", key))["id"] == child["id"] != machine
    for each in (machine, str(child["id"])):
        _check_whole(stack, each)
    stack.must(stack.do(child["id"], "delete"))


def test_a_machine_that_is_deleted_is_gone_though_its_node_dies_halfway(stack: CrashStack, machine: str) -> None:
    stack.arm(CrashPoint.REMOVE_AFTER_DESTROY)
    assert stack.do(machine, "delete").status in (200, 404)
    _died_at(stack, CrashPoint.REMOVE_AFTER_DESTROY)
    assert stack.settled(machine)["state"] == "deleted"
    assert not (stack.home.path / "node" / "machines" / machine).exists()


def _same_verdict(one: Answer, other: Answer) -> bool:
    return (one.status, one.code) == (other.status, other.code)
