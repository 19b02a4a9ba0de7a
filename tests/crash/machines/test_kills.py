"""kill -9 of each process of a stack at any moment while a machine is made and used: asked again, it is done, and once.
The other verbs have it at every point of theirs (`points`), and at any moment in the campaign."""

import random
import threading
import uuid
from collections.abc import Iterator

import pytest

from crash.machines.stacks import PROCESSES, Answer, CrashStack, append

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("machine_kills")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashStack]:
    with CrashStack(tmp_path_factory.mktemp("kills")).running() as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


def _while_it_dies(stack: CrashStack, victim: str, delay_s: float, verb: str, machine: str) -> Answer:
    stack.wait_until_well()
    timer = threading.Timer(delay_s, stack.kill, (victim,))
    timer.start()
    try:
        if verb == "create":
            return stack.ask("POST", "/v1/machines", {"environment": "host"})
        effect = f"eff_{uuid.uuid4().hex}"
        return stack.exec(machine, effect, append(effect, after_s=0.2))
    finally:
        timer.join()


@pytest.mark.parametrize("victim", PROCESSES)
def test_a_machine_is_made_and_a_command_runs_once_whichever_process_dies_in_it(stack: CrashStack, victim: str) -> None:
    delays = random.Random(f"delays of {victim}")
    with stack.trace.told_on_failure(f"kill -9 {victim}"):
        machine = str(stack.must(_while_it_dies(stack, victim, delays.uniform(0, 0.3), "create", ""))["id"])
        done = stack.must(_while_it_dies(stack, victim, delays.uniform(0, 0.3), "exec", machine))
        assert done["outcome"] == "finished"
        assert stack.lines(machine) == [done["effect_id"]]
        assert stack.do(machine, "delete").status in (200, 404)
