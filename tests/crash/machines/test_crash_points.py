"""Processes killed at the armed points of a machine's life. Asked again with the same key, what was asked for is so: a
command ran once, a machine is whole or its history says what is gone, and nothing is left on the host. Of exec, wake,
hibernate and fork all of it is in `points.py`; here the node dies at each point, and one of the others."""

import uuid
from collections.abc import Iterator

import pytest

from crash.machines.points import (
    CHECKPOINT_POINTS,
    MATRIX,
    UP_POINTS,
    USUAL,
    Case,
    Machines,
    is_whole,
    make_machine,
    play,
)
from crash.machines.stacks import CrashStack, append
from outlive.base import CrashPoint

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("machine_crash_points")]


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
        made = make_machine(stack)
        yield made
        stack.disarm()
        stack.do(made, "delete")


@pytest.fixture(scope="module")
def machines(stack: CrashStack) -> Machines:
    return Machines(stack)


def _cases(verb: str) -> list[Case]:
    return [case for case in USUAL if case.verb == verb]


def _play(stack: CrashStack, machines: Machines, case: Case) -> None:
    with stack.trace.told_on_failure("what was done and seen"), machines.one() as machine:
        play(stack, machine, case)


@pytest.mark.parametrize("case", _cases("exec"), ids=str)
def test_a_command_runs_once_whoever_dies_at_a_point_of_it(stack: CrashStack, machines: Machines, case: Case) -> None:
    _play(stack, machines, case)


@pytest.mark.parametrize("case", _cases("wake"), ids=str)
def test_a_machine_that_wakes_has_its_memory_whoever_dies_at_a_point_of_it(
    stack: CrashStack, machines: Machines, case: Case
) -> None:
    _play(stack, machines, case)


@pytest.mark.parametrize("case", _cases("hibernate"), ids=str)
def test_a_machine_that_hibernates_loses_nothing_whoever_dies_at_a_point_of_it(
    stack: CrashStack, machines: Machines, case: Case
) -> None:
    _play(stack, machines, case)


@pytest.mark.parametrize("case", _cases("fork"), ids=str)
def test_a_fork_is_made_once_with_the_memory_whoever_dies_at_a_point_of_it(
    stack: CrashStack, machines: Machines, case: Case
) -> None:
    _play(stack, machines, case)


def test_each_process_dies_in_each_verb_and_somebody_besides_the_node_at_each_point() -> None:
    assert {(case.verb, case.victim) for case in USUAL} == {(case.verb, case.victim) for case in MATRIX}
    assert {case for case in MATRIX if case.victim == "node"} <= set(USUAL)
    assert {case[:2] for case in USUAL if case.victim != "node"} == {case[:2] for case in MATRIX}


def _died_at(stack: CrashStack, point: CrashPoint) -> None:
    assert not stack.is_armed(point), f"nothing came by {point}"


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


@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
def test_a_machine_goes_on_wherever_its_node_dies_while_it_is_saved(
    stack: CrashStack, machine: str, point: CrashPoint
) -> None:
    key, before = uuid.uuid4().hex, stack.look(machine)
    stack.arm(point)
    saved = stack.must(stack.do(machine, "checkpoint", key))
    _died_at(stack, point)
    assert stack.must(stack.do(machine, "checkpoint", key)) == saved
    assert is_whole(stack, machine)
    after = stack.settled(machine)
    assert (after["generation"], after["state"]) == (before["generation"], "running")
    assert saved["id"] in {each["id"] for each in stack.home.get(f"/v1/machines/{machine}/checkpoints")["items"]}


def test_a_machine_that_is_deleted_is_gone_though_its_node_dies_halfway(stack: CrashStack, machine: str) -> None:
    stack.arm(CrashPoint.REMOVE_AFTER_DESTROY)
    assert stack.do(machine, "delete").status in (200, 404)
    _died_at(stack, CrashPoint.REMOVE_AFTER_DESTROY)
    assert stack.settled(machine)["state"] == "deleted"
    assert not (stack.home.path / "node" / "machines" / machine).exists()
