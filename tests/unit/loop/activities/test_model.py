"""A model step by itself, on a real log, without Temporal: whom it asks, and what it says of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from outlive.base import ConversationId, OutliveError, TurnId, new_operation_id
from outlive.conversation.events import Event
from outlive.loop.activities.model import ModelActivities, ModelBounds
from outlive.loop.activities.scribe import Scribe
from outlive.loop.agents import AgentDefinition
from outlive.loop.fold import step_id
from outlive.loop.models import Answer, BadRequestError, ModelRequest, OverloadedError, Piece, TextDelta
from outlive.loop.models.registry import ModelRegistry
from outlive.loop.plan import ModelStep, Plan
from outlive.loop.steering import Steering
from outlive.loop.tasks import ModelTask
from outlive.loop.views import Views
from outlive.wiring.build import Parts, open_parts
from outlive.wiring.settings import read_settings

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = "openai:first", "openai:second", "openai:third"
FULL = OverloadedError("model.overloaded", "It is full.")


class Scripted:
    """A provider whose models answer, or go wrong in the middle of a sentence."""

    def __init__(self) -> None:
        self.wrong: dict[str, OutliveError] = {}
        self.asked: list[str] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        self.asked.append(request.model)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        yield TextDelta("I ")
        if (error := self.wrong.get(request.model)) is not None:
            raise error
        yield TextDelta("am here.")
        yield Answer("I am here.")

    async def aclose(self) -> None:
        pass


class Room:
    """Workers that have the same log and nothing else in common."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.provider = Scripted()
        self.workers = [self._worker(), self._worker()]

    def _worker(self) -> ModelActivities:
        conversations = self.parts.conversations
        scribe = Scribe(conversations, Views(conversations, {}))
        models = ModelRegistry({"openai": lambda: self.provider})
        return ModelActivities(scribe, self.parts.agents, models, ModelBounds())

    async def begin(self, *fallbacks: str) -> tuple[ConversationId, TurnId]:
        definition = AgentDefinition(name="steady", model=FIRST, instructions="Go.", tools=(), fallbacks=fallbacks)
        await self.parts.agents.apply(definition, by="prin_1")
        made = await self.parts.conversations.create(new_operation_id(), actor="prin_1", agent="steady")
        sent = await self.parts.conversations.send(new_operation_id(), made.id, actor="prin_1", text="Hello")
        return made.id, sent.turn

    async def run(self, conversation: ConversationId, turn: TurnId) -> Plan:
        """As Temporal does it, with another worker each time: again after a failure, and what the plan says next."""
        task = ModelTask(conversation=conversation, turn=turn, model=ModelStep(step=step_id(turn, 1), n=1))
        for n in range(50):
            try:
                plan: Plan = await ActivityEnvironment().run(self.workers[n % 2].call_model, task)
            except ApplicationError:
                continue
            if plan.model is None:
                return plan
            assert plan.model == task.model
        raise AssertionError("it does not come to an end")

    async def change(self, conversation: ConversationId, model: str) -> None:
        steering = Steering(self.parts.conversations, None)
        await steering.change_model(new_operation_id(), conversation, actor="prin_1", model=model, scope="turn")

    async def events(self, conversation: ConversationId) -> list[Event]:
        return list(await self.parts.conversations.read(conversation, 0, 1_000))


@pytest.fixture
async def room(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Room]:
    async with open_parts(read_settings({"home": tmp_path})) as parts:
        yield Room(parts)


def said(events: list[Event]) -> list[tuple[str, str]]:
    """Who was asked, and what was said of it."""
    names = {"step.started": "name", "model.fallback": "model", "model.changed": "model", "model.responded": "model"}
    return [(event.type, event.data[names[event.type]]) for event in events if event.type in names]


async def test_a_fallback_is_said_before_it_is_asked_whichever_worker_goes_on(room: Room) -> None:
    conversation, turn = await room.begin(SECOND)
    room.provider.wrong = {"first": FULL}
    assert (await room.run(conversation, turn)).nothing
    events = await room.events(conversation)
    assert said(events) == [
        *[("step.started", FIRST)] * 3,
        ("model.fallback", SECOND),
        ("step.started", SECOND),
        ("model.responded", SECOND),
    ]
    assert [event.data["attempt"] for event in events if event.type == "turn.recovered"] == [2, 3]
    assert [event.data["text"] for event in events if event.type == "model.responded"] == ["I am here."]


async def test_an_attempt_begins_with_what_the_log_says_though_the_worker_looked_before(room: Room) -> None:
    conversation, turn = await room.begin()
    for worker in room.workers:  # both have a view of the log, from before the change
        await worker._scribe.views.catch_up(conversation)
    await room.change(conversation, SECOND)
    await room.run(conversation, turn)
    assert room.provider.asked == ["second"]
    [started] = [event for event in await room.events(conversation) if event.type == "turn.started"]
    assert started.data["model"] == SECOND


@pytest.mark.parametrize("error", [FULL, BadRequestError("model.bad_request", "What?")])
async def test_whoever_asks_for_another_model_while_one_fails_gets_it_at_once(room: Room, error: OutliveError) -> None:
    conversation, turn = await room.begin(THIRD)
    room.provider.wrong = {"first": error}
    room.provider.meanwhile = lambda: room.change(conversation, SECOND)
    assert (await room.run(conversation, turn)).nothing
    events = await room.events(conversation)
    assert said(events) == [
        ("step.started", FIRST),
        ("model.changed", SECOND),
        ("step.started", SECOND),
        ("model.responded", SECOND),
    ]
    [recovered] = [event.data for event in events if event.type == "turn.recovered"]
    assert recovered["reason"].endswith(f"({SECOND} is asked now)")


async def test_a_change_while_a_model_answers_leaves_its_answer_alone(room: Room) -> None:
    conversation, turn = await room.begin(THIRD)
    room.provider.meanwhile = lambda: room.change(conversation, SECOND)
    assert (await room.run(conversation, turn)).nothing
    assert said(await room.events(conversation))[-1] == ("model.responded", FIRST)
    assert room.provider.asked == ["first"]


async def test_an_attempt_that_is_stopped_for_a_message_is_said_as_such_and_is_no_failure_of_the_model(
    room: Room,
) -> None:
    conversation, turn = await room.begin(SECOND)
    room.provider.wrong = {"first": FULL}

    async def hurry() -> None:
        for text in ("Wait", "Or rather"):
            await room.parts.conversations.send(
                new_operation_id(), conversation, actor="prin_1", text=text, is_hurried=True
            )
        await anyio.sleep_forever()

    room.provider.meanwhile = hurry
    assert (await room.run(conversation, turn)).nothing
    events = await room.events(conversation)
    assert said(events)[:5] == [*[("step.started", FIRST)] * 4, ("model.fallback", SECOND)], "three that failed"
    reasons = [event.data["reason"] for event in events if event.type == "turn.recovered"]
    assert reasons[0] == "A message came that was to be read at once."
    assert all("It is full" in each for each in reasons[1:])


async def test_what_is_wrong_with_the_request_ends_the_turn_though_there_are_fallbacks(room: Room) -> None:
    conversation, turn = await room.begin(SECOND)
    room.provider.wrong = {"first": BadRequestError("model.bad_request", "What?")}
    finish = (await room.run(conversation, turn)).finish
    assert finish is not None
    assert finish.outcome == "failed"
    assert room.provider.asked == ["first"]
