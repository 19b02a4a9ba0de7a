"""Random interleavings of writers, retries, zombies, crashes and readers: the log and every reader stay right.

The model is the plain bookkeeping of what was acknowledged. After each run every reader is brought up to date, and
- the log is dense, without a double, and holds exactly what was acknowledged;
- a zombie left nothing: every refused append added no event, and no turn that is over has begun a step;
- what a reader was shown, over all its connections, is what an uninterrupted one is shown;
- each reader's folded view equals the transcript of the log.
"""

import shutil
import tempfile
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from outlive.base import (
    ConflictError,
    ConversationId,
    FencedError,
    StepId,
    TurnId,
    new_operation_id,
    new_step_id,
    new_turn_id,
    to_text,
)
from outlive.conversation.conversations import Following, Sent
from outlive.conversation.events import Delta, Event, ModelResponded, NewEvent, Rewound, TurnFinished, TurnStarted
from outlive.conversation.follower import Follower, Frame
from outlive.conversation.log import Append
from outlive.conversation.position import START, parse_position
from outlive.conversation.projection import Transcript
from outlive.conversation.writer import StepWriter, start_step
from rooms import Room, open_embedded_room, open_scaled_room
from services.redis import RedisService

ACTOR = "prin_test"


@dataclass
class Step:
    id: StepId
    turn: TurnId
    writers: list[StepWriter] = field(default_factory=list)
    is_open: bool = True


@dataclass
class Reader:
    """A client: what it was shown, and the position it would come back with."""

    position: str | None = None
    shown: list[Frame] = field(default_factory=list)
    connection: AbstractAsyncContextManager[Following] | None = None
    following: Following | None = None


def durable(frames: list[Frame]) -> list[Event | Rewound]:
    return [frame.body for frame in frames if not isinstance(frame.body, Delta)]


ACTIONS = (
    ["start_step"] * 3
    + ["retry_step"] * 3
    + ["stream"] * 8
    + ["seal"] * 4
    + ["start_in_a_turn_that_is_over"] * 2
    + ["send", "end_turn", "crash_the_api", "crash_the_worker"]
    + ["read_some"] * 4
    + ["reconnect"] * 2
    + ["disconnect"]
    + ["lose_what_was_not_processed"] * 2
)


class ConversationMachine(RuleBasedStateMachine):
    follower_limit: ClassVar[int] = 8  # so small that slow readers really lag

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="outlive-test-"))
        self.portal_context = start_blocking_portal()
        self.portal: BlockingPortal = self.portal_context.__enter__()
        self.acknowledged: list[str] = []  # event ids, in order
        self.steps: list[Step] = []
        self.turn: TurnId | None = None
        self.turns_over: list[TurnId] = []
        self.all_readers: list[Reader] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("outlive.conversation.hub.FOLLOWER_LIMIT", self.follower_limit)
        self._open_api()
        self._open_worker()

    # ── the house, and its crash ──

    def open_room(self, *, broker: bool = True) -> AbstractAsyncContextManager[Room]:
        """One process: with the broker it stands for the API, where the readers are, without for a worker."""
        return open_embedded_room(self.home, broker=broker)

    def _open_api(self) -> None:
        self.api_context = self.portal.wrap_async_context_manager(self.open_room())
        self.api = self.api_context.__enter__()

    def _open_worker(self) -> None:
        self.worker_context = self.portal.wrap_async_context_manager(self.open_room(broker=False))
        self.worker = self.worker_context.__enter__()
        self.conversations = self.worker.conversations

    @initialize()
    def create(self) -> None:
        conversation = self.portal.call(self._create)
        self.conversation: ConversationId = conversation
        self.acknowledged += [event.id for event in self._log()]
        self.all_readers = [Reader() for _ in range(3)]
        for reader in self.all_readers:
            self._connect(reader)

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def act(self, action: str, data: st.DataObject) -> None:
        """One rule that chooses: Hypothesis switches whole rules off in most runs, and these need each other."""
        getattr(self, action)(data)

    async def _create(self) -> ConversationId:
        return (await self.conversations.create(new_operation_id(), actor=ACTOR, title="random")).id

    def crash_the_api(self, data: st.DataObject) -> None:
        """The broker and all connections are gone; clients come back with the position they had. Writers go on."""
        for reader in self.all_readers:
            self._disconnect(reader)
        self.api_context.__exit__(None, None, None)
        self._open_api()

    def crash_the_worker(self, data: st.DataObject) -> None:
        """What its writers had in memory is gone; open steps wait for their next attempt."""
        self.worker_context.__exit__(None, None, None)
        self._open_worker()
        for step in self.steps:
            step.writers.clear()

    # ── writers ──

    def end_turn(self, data: st.DataObject) -> None:
        if self.turn is not None:
            self._end_turn()

    def _end_turn(self) -> None:
        assert self.turn is not None
        self._append(TurnFinished(outcome="done"), self.turn)
        self.turns_over.append(self.turn)
        self.turn = None
        for step in self.steps:
            step.is_open = False

    def send(self, data: st.DataObject) -> None:
        text = data.draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5))
        operation = new_operation_id()

        async def send() -> list[Sent]:
            return [
                await self.conversations.send(operation, self.conversation, actor=ACTOR, text=text) for _ in range(2)
            ]

        first, again = self.portal.call(send)
        assert first == again
        assert first.seq == len(self.acknowledged) + 1
        assert self.turn in (None, first.turn)
        self.turn = first.turn
        self._acknowledge_from_log(1)

    def start_step(self, data: st.DataObject) -> None:
        if self.turn is None:
            self.turn = new_turn_id()
            self._append(TurnStarted(agent="a", version=1, model="demo:"), self.turn)
        step = Step(new_step_id(), self.turn)
        self.steps.append(step)
        self._start(step)

    def start_in_a_turn_that_is_over(self, data: st.DataObject) -> None:
        """A worker that stood still while its turn was ended, and goes on where it was."""
        if self.turns_over:
            late = Step(new_step_id(), data.draw(st.sampled_from(self.turns_over)))
            with pytest.raises(FencedError) as refused:
                self._start(late)
            assert refused.value.code == "turn.over"

    def retry_step(self, data: st.DataObject) -> None:
        if steps := [step for step in self.steps if step.is_open]:
            self._start(data.draw(st.sampled_from(steps)))

    def stream(self, data: st.DataObject) -> None:
        """Any writer streams, zombies too; those who are connected look at it or do not."""
        writers = [writer for step in self.steps for writer in step.writers]
        if not writers:
            return
        writer = data.draw(st.sampled_from(writers[-6:]))
        times = data.draw(st.integers(1, 20))

        async def stream() -> None:
            for _ in range(times):
                writer.delta("abc")
                await self.worker.feed.flush()

        self.portal.call(stream)
        for reader in self.all_readers:
            if data.draw(st.booleans()):
                self._read(reader, 5)

    def seal(self, data: st.DataObject) -> None:
        """Any writer tries to seal: the last attempt of an open step may, everybody else is refused."""
        steps = [step for step in self.steps if step.writers]
        if not steps:
            return
        step = data.draw(st.sampled_from(steps[-4:]))
        writer = data.draw(st.sampled_from(step.writers))
        result = ModelResponded(text=f"sealed {step.id}", model="demo:")
        if step.is_open and writer is step.writers[-1] and self._is_last(step, writer):
            self.portal.call(writer.seal, result)
            step.is_open = False
            self._acknowledge_from_log(1)
        else:
            with pytest.raises((FencedError, ConflictError)):
                self.portal.call(writer.seal, result)

    def _is_last(self, step: Step, writer: StepWriter) -> bool:
        starts = [event.seq for event in self._log() if event.type == "step.started" and event.step == step.id]
        return writer.start == starts[-1]

    def _start(self, step: Step) -> None:
        attempt = 1 + sum(event.type == "step.started" and event.step == step.id for event in self._log())

        async def start() -> StepWriter:
            return await start_step(
                self.conversations,
                self.conversation,
                turn=step.turn,
                step=step.id,
                attempt=attempt,
                kind="model",
                name="demo:",
                actor=ACTOR,
            )

        step.writers.append(self.portal.call(start))
        self._acknowledge_from_log(1)

    def _append(self, data: TurnStarted | TurnFinished, turn: TurnId | None) -> None:
        new = NewEvent(data, to_text(self.conversations.clock.now()))
        append = Append(self.conversation, (new,), key=new.id, actor=ACTOR, turn=turn)

        async def twice() -> list[bool]:
            return [(await self.conversations.append(append)).is_repeat for _ in range(2)]

        assert self.portal.call(twice) == [False, True]
        self._acknowledge_from_log(1)

    # ── readers ──

    def reconnect(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.all_readers))
        self._disconnect(reader)
        self._connect(reader)

    def disconnect(self, data: st.DataObject) -> None:
        self._disconnect(data.draw(st.sampled_from(self.all_readers)))

    def read_some(self, data: st.DataObject) -> None:
        """A reader that is slow: it looks now and then."""
        self._read(data.draw(st.sampled_from(self.all_readers)), data.draw(st.integers(1, 5)))

    def _read(self, reader: Reader, batches: int) -> None:
        async def read() -> None:
            assert reader.following is not None
            with anyio.move_on_after(0.02):
                for _ in range(batches):
                    frames = await reader.following.next_frames()
                    reader.shown += frames

        if reader.following is not None:
            self.portal.call(read)
            reader.position = reader.shown[-1].position if reader.shown else None

    def lose_what_was_not_processed(self, data: st.DataObject) -> None:
        """The client dies having processed only a part of what it was sent, and comes back from there."""
        reader = data.draw(st.sampled_from(self.all_readers))
        self._disconnect(reader)
        kept = data.draw(st.integers(50, 100))  # of a hundred: how much it was sent depends on the host's haste
        del reader.shown[len(reader.shown) * kept // 100 :]
        reader.position = reader.shown[-1].position if reader.shown else None
        self._connect(reader)

    def _connect(self, reader: Reader) -> None:
        position = parse_position(self.conversation, reader.position) if reader.position else START
        reader.connection = self.api.conversations.follow(self.conversation, position)
        reader.following = self.portal.call(reader.connection.__aenter__)

    def _disconnect(self, reader: Reader) -> None:
        if reader.connection is not None:
            self.portal.call(reader.connection.__aexit__, None, None, None)
            reader.connection = reader.following = None

    # ── what has to hold ──

    def _log(self) -> list[Event]:
        return self.portal.call(self.conversations.read, self.conversation, 0, 10_000)

    def _acknowledge_from_log(self, count: int) -> None:
        self.acknowledged += [event.id for event in self._log()[-count:]]

    @invariant()
    def the_log_holds_exactly_what_was_acknowledged(self) -> None:
        if not self.acknowledged:
            return
        log = self._log()
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert [event.id for event in log] == self.acknowledged
        assert len(set(self.acknowledged)) == len(self.acknowledged)

    def teardown(self) -> None:
        try:
            if self.acknowledged:
                self._check_readers()
        finally:
            for reader in self.all_readers:
                self._disconnect(reader)
            self.worker_context.__exit__(None, None, None)
            self.api_context.__exit__(None, None, None)
            self.portal_context.__exit__(None, None, None)
            self.patch.undo()
            shutil.rmtree(self.home)

    def _check_readers(self) -> None:
        if self.turn is not None:
            self._end_turn()  # then no step is open, and every view has to be that of the log
        log = self._log()
        uninterrupted = Follower(self.conversation, START, [])
        expected = durable([frame for event in log for frame in uninterrupted.event(event)])
        told = Transcript()
        for event in log:
            told.fold(event)
        for reader in self.all_readers:
            if reader.following is None:
                self._connect(reader)
            self.portal.call(self._bring_up_to_date, reader, len(log))
            assert durable(reader.shown) == expected
            assert len({frame.position for frame in reader.shown}) == len(reader.shown), "nothing is shown twice"
            view = Transcript()
            for frame in reader.shown:
                view.fold(frame.body)
            assert view.to_json() == told.to_json()

    async def _bring_up_to_date(self, reader: Reader, head: int) -> None:
        assert reader.following is not None
        with anyio.fail_after(10):
            while not reader.shown or parse_position(self.conversation, reader.shown[-1].position).seq < head:
                reader.shown += await reader.following.next_frames()


class ScaledMachine(ConversationMachine):
    """The same on PostgreSQL and Redis, which no crash of a process takes along."""

    postgres: ClassVar[str]
    redis: ClassVar[str]

    def open_room(self, *, broker: bool = True) -> AbstractAsyncContextManager[Room]:
        return open_scaled_room(self.home, postgres=self.postgres, redis=self.redis)


PROFILE = settings(max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(400)
def test_any_interleaving_leaves_log_and_readers_right_on_sqlite_and_the_local_feed() -> None:
    run_state_machine_as_test(ConversationMachine, settings=PROFILE)


@pytest.mark.timeout(400)
def test_any_interleaving_leaves_log_and_readers_right_on_postgresql_and_redis(
    postgres_dsn: str, redis_server: RedisService
) -> None:
    ScaledMachine.postgres, ScaledMachine.redis = postgres_dsn, redis_server.url
    run_state_machine_as_test(ScaledMachine, settings=settings(PROFILE, max_examples=20))
