"""Storage grows with what was said, not with how it was streamed."""

import random
from pathlib import Path

import anyio
import pytest

from outlive.base import new_operation_id, new_step_id
from outlive.conversation.events import Delta, Event, ModelResponded
from outlive.conversation.position import START
from outlive.conversation.writer import start_step
from rooms import open_embedded_room

pytestmark = pytest.mark.anyio

STEPS = 100
DELTAS_PER_STEP = 10_000
WORDS = "the agent reads a file then runs every test and says what it found in plain words".split()


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("each", "steps"), [("word", STEPS), ("letter", STEPS // 5)], ids=["word", "letter"])
async def test_a_million_deltas_leave_little_more_than_the_sealed_results(
    tmp_path: Path, each: str, steps: int
) -> None:
    sealed_bytes = 0
    streamed = 0
    async with open_embedded_room(tmp_path) as room:
        conversations = room.conversations
        conversation = (await conversations.create(new_operation_id(), actor="prin_test")).id

        async def follow() -> None:
            nonlocal streamed
            async with conversations.follow(conversation, START) as following:
                sealed = 0
                while sealed < steps:
                    for frame in await following.next_frames():
                        streamed += isinstance(frame.body, Delta)
                        sealed += isinstance(frame.body, Event) and frame.body.type == "model.responded"

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            for number in range(steps):
                step = await start_step(
                    conversations, conversation, turn=None, step=new_step_id(), attempt=1,
                    kind="model", name="demo:", actor="prin_test",
                )  # fmt: skip
                dice = random.Random(number)
                pieces = [dice.choice(WORDS) + " " for _ in range(DELTAS_PER_STEP)]
                if each == "letter":
                    pieces = list("".join(pieces)[:DELTAS_PER_STEP])
                for index, piece in enumerate(pieces):
                    step.delta(piece)
                    if index % 500 == 0:
                        await anyio.lowlevel.checkpoint()
                text = "".join(pieces)
                sealed_bytes += len(text.encode())
                await step.seal(ModelResponded(text=text, model="demo:"))
    assert streamed > steps, "the deltas really went to a follower"
    assert bytes_in(tmp_path) <= 1.2 * sealed_bytes, f"{bytes_in(tmp_path) / sealed_bytes:.2f} times"
