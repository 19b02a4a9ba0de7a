"""A writer killed at any armed point, or at any moment: the log has no hole and no double, and the turn ends."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from outlive.base import (
    ConversationId,
    CrashPoint,
    StepId,
    TurnId,
    new_operation_id,
    new_step_id,
    new_turn_id,
    to_text,
)
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Delta, Event, NewEvent, TurnStarted
from outlive.conversation.follower import Follower, Frame
from outlive.conversation.log import Append
from outlive.conversation.position import START
from outlive.conversation.projection import Transcript
from rooms import open_embedded_room, open_scaled_room
from services.redis import RedisService

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).with_name("writing.py")
STEPS = 6

WRITER_POINTS = [
    CrashPoint.BLOB_BEFORE_PUT,
    CrashPoint.BLOB_AFTER_PUT,
    CrashPoint.LOG_BEFORE_COMMIT,
    CrashPoint.LOG_AFTER_COMMIT,
    CrashPoint.FEED_BEFORE_PUBLISH,
    CrashPoint.FEED_AFTER_PUBLISH,
    CrashPoint.STEP_AFTER_START,
    CrashPoint.STEP_AFTER_DELTA,
    CrashPoint.STEP_BEFORE_SEAL,
]


class Writing:
    """The child processes of one test, and a follower that watches them from another process."""

    def __init__(
        self, home: Path, conversations: Conversations, conversation: ConversationId, environment: dict[str, str]
    ) -> None:
        self.conversations = conversations
        self.conversation = conversation
        self.turn: TurnId = new_turn_id()
        self.steps: list[StepId] = [new_step_id() for _ in range(STEPS)]
        self.shown: list[Frame] = []
        self._environment = os.environ | environment | {"PYTHONPATH": str(PROGRAM.parents[1])}
        self._command = [sys.executable, str(PROGRAM), str(home), conversation, self.turn, *self.steps]

    def start(self, crash_at: str = "") -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, env=self._environment | {"OUTLIVE_CRASH_AT": crash_at})

    async def run(self, crash_at: str = "") -> int:
        child = self.start(crash_at)
        return await anyio.to_thread.run_sync(child.wait, 30)

    async def follow_to_the_end(self) -> None:
        async with self.conversations.follow(self.conversation, START) as following:
            while True:
                frames = await following.next_frames()
                self.shown += frames
                if any(isinstance(frame.body, Event) and frame.body.type == "turn.finished" for frame in frames):
                    return

    async def check(self) -> None:
        log = await self.conversations.read(self.conversation, 0, 10_000)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert len({event.id for event in log}) == len(log)
        assert [event.type for event in log].count("turn.finished") == 1
        for step in self.steps:
            of_step = [event for event in log if event.step == step]
            seals = [event for event in of_step if event.type in ("model.responded", "tool.finished")]
            assert len(seals) == 1, "a step is sealed once, however often it was started"
            attempts = [event.attempt for event in of_step if event.type == "step.started"]
            assert attempts == list(range(1, len(attempts) + 1))
            assert seals[0].attempt == attempts[-1]
        uninterrupted = Follower(self.conversation, START, [])
        expected = [frame.body for event in log for frame in uninterrupted.event(event)]
        assert [frame.body for frame in self.shown if not isinstance(frame.body, Delta)] == expected
        view = Transcript()
        for frame in self.shown:
            view.fold(frame.body)
        assert view.to_json() == (await self.conversations.transcript(self.conversation)).to_json()


async def begin(home: Path, conversations: Conversations, environment: dict[str, str] | None = None) -> Writing:
    made = await conversations.create(new_operation_id(), actor="prin_test")
    writing = Writing(home, conversations, made.id, environment or {})
    started = NewEvent(TurnStarted(agent="a", version=1, model="demo:"), to_text(conversations.clock.now()))
    await conversations.append(Append(made.id, (started,), key="start", actor="prin_test", turn=writing.turn))
    return writing


async def kill_at(writing: Writing, point: CrashPoint, visit: int) -> None:
    """Die at the point, go on from the log, and end the turn; a follower watches."""
    async with anyio.create_task_group() as group:
        group.start_soon(writing.follow_to_the_end)
        big_results = 2  # of the six: only those go to the object store
        code = await writing.run(f"{point}:{min(visit, big_results) if point.startswith('blob') else visit}")
        assert code == -signal.SIGKILL, "the point was reached and armed"
        assert await writing.run() == 0
    await writing.check()


@pytest.mark.parametrize("visit", [1, 3])
@pytest.mark.parametrize("point", WRITER_POINTS)
async def test_a_writer_killed_at_an_armed_point_leaves_a_log_that_goes_on(
    tmp_path: Path, point: CrashPoint, visit: int
) -> None:
    async with open_embedded_room(tmp_path) as room:
        await kill_at(await begin(tmp_path, room.conversations), point, visit)


@pytest.mark.parametrize("point", WRITER_POINTS)
async def test_a_writer_killed_on_postgresql_and_redis_leaves_a_log_that_goes_on(
    tmp_path: Path, point: CrashPoint, postgres_dsn: str, redis_server: RedisService
) -> None:
    async with open_scaled_room(tmp_path, postgres=postgres_dsn, redis=redis_server.url) as room:
        environment = {"POSTGRES": postgres_dsn, "REDIS": redis_server.url}
        await kill_at(await begin(tmp_path, room.conversations, environment), point, 2)


@pytest.mark.parametrize("seed", range(3))
async def test_a_writer_killed_again_and_again_at_any_moment_still_ends_the_turn(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with open_embedded_room(tmp_path) as room:
        writing = await begin(tmp_path, room.conversations)
        async with anyio.create_task_group() as group:
            group.start_soon(writing.follow_to_the_end)
            for _ in range(5):
                child = writing.start()
                with anyio.move_on_after(dice.uniform(0.3, 0.8)):
                    await anyio.to_thread.run_sync(child.wait, 30, abandon_on_cancel=True)
                child.kill()
                child.wait()
            assert await writing.run() == 0
        await writing.check()
