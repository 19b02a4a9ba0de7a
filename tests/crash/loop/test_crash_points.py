"""A turn with three model steps, commands and a file, and a process killed at each armed point of it. The turn ends and
reads as if nothing had been, every command ran once, nothing that was sealed is bought again, and who followed saw it
right."""

from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from crash.loop.checker import Usual, usual_of, wrongs
from crash.loop.stacks import LOOP_POINTS, LoopStack, loop_stack
from eventually import eventually
from outlive.base import CrashPoint

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.xdist_group("loop_crash_points")]

TAG = "t0000"
# A worker that dies right after the end of a turn has nothing left to do for it: nobody is told that it was mended.
SILENT = {CrashPoint.TURN_AFTER_SUBMIT, CrashPoint.TURN_AFTER_PLAN, CrashPoint.MODEL_AFTER_SEAL}
SILENT |= {CrashPoint.TOOL_AFTER_SEAL, CrashPoint.TURN_BEFORE_END, CrashPoint.TURN_AFTER_END}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopStack]:
    with loop_stack(tmp_path_factory.mktemp("turns")) as stack, stack.trace.told_on_failure("the stack"):
        yield stack
        stack.down()


@pytest.fixture(scope="module")
def undisturbed(stack: LoopStack) -> dict[str, Usual]:
    """What a person reads of a turn that nothing happens to."""

    async def run() -> dict[str, Usual]:
        async with stack.talks() as [talk]:
            await talk.do(TAG)
            account = await talk.account(stack.calls())
            assert wrongs(account, usual_of(account)) == []
            return usual_of(account)

    return anyio.run(run)


@pytest.mark.parametrize("point", LOOP_POINTS)
async def test_a_turn_ends_as_if_nothing_had_been_wherever_its_worker_dies(
    stack: LoopStack, undisturbed: dict[str, Usual], point: CrashPoint
) -> None:
    async with stack.talks() as [talk]:
        stack.arm(point)
        await talk.do(TAG)
        await eventually(lambda: not stack.is_armed(point), 30.0)
        account = await talk.account(stack.calls())
    assert wrongs(account, undisturbed) == []
    retried = [event.data for event in account.log if event.type == "turn.recovered"]
    assert [each["what"] for each in retried] == ([] if point in SILENT else ["step_retried"])


@pytest.mark.parametrize("victim", ["api", "node", "temporal"])
async def test_turns_end_as_if_nothing_had_been_though_another_process_dies_at_every_point_of_them(
    stack: LoopStack, undisturbed: dict[str, Usual], victim: str
) -> None:
    """The next point is armed as soon as the process is back: a few turns are enough for all of them."""
    left = [*LOOP_POINTS]

    async def kill_at_each() -> None:
        while left:
            await anyio.to_thread.run_sync(stack.wait_until_well)
            if pid := stack.pid_of(victim):
                stack.arm(left[0], pid)
                await eventually(lambda: not stack.is_armed(left[0]), 120.0)
                left.pop(0)

    async with stack.talks() as [talk], anyio.create_task_group() as killing:
        killing.start_soon(kill_at_each)
        while left:
            await talk.do(f"t{len(talk.turns) + 1:04}")
        account = await talk.account(stack.calls())
    assert wrongs(account, undisturbed) == []
