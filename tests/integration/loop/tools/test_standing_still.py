"""A worker that stood still (it was stopped, or cut off) while its turn was ended, and goes on where it was: it does
nothing any more. The activities run here as a worker runs them, held between their look into the log and their
beginning; who ends the turn meanwhile is another worker."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import pytest
from temporalio.testing import ActivityEnvironment

from integration.loop.tools.workshop import Workshop
from outlive.base import ConversationId, TurnId, new_operation_id, to_text
from outlive.conversation.events import EventData, ModelResponded, NewEvent, ToolCall, TurnFinished, TurnInterrupted
from outlive.conversation.log import Append
from outlive.conversation.writer import StepWriter, start_step
from outlive.loop.activities.plan import PlanActivities
from outlive.loop.activities.scribe import Scribe
from outlive.loop.activities.tool import ToolActivities
from outlive.loop.binding import Persona
from outlive.loop.fold import step_id
from outlive.loop.plan import Plan
from outlive.loop.state import Binding
from outlive.loop.tasks import LookTask, ToolTask
from outlive.loop.tools.registry import BUILT_IN
from outlive.loop.views import Views

pytestmark = pytest.mark.anyio

BOUND = Binding("coder", 1, "demo:")
RUN = ToolCall(id="call_1", name="write_file", arguments={"path": "done", "content": "by a worker that stood still"})


class HeldAgents:
    """Agents whose answer takes as long as somebody holds it: it is asked for between the look and the beginning."""

    def __init__(self) -> None:
        self.is_asked = anyio.Event()
        self.may_answer = anyio.Event()

    async def bind(self, agent: str | None, model: str | None) -> Binding:
        await self._hold()
        return BOUND

    async def persona(self, bound: Binding) -> Persona:
        await self._hold()
        return Persona("", tuple(BUILT_IN))

    async def _hold(self) -> None:
        self.is_asked.set()
        await self.may_answer.wait()


class Talk(NamedTuple):
    workshop: Workshop
    id: ConversationId

    async def say(self, turn: TurnId, *data: EventData) -> None:
        at = to_text(self.workshop.conversations.clock.now())
        events = tuple(NewEvent(each, at) for each in data)
        await self.workshop.conversations.append(Append(self.id, events, key=events[0].id, actor="other", turn=turn))

    async def send(self, text: str, *, is_hurried: bool = False) -> TurnId:
        sent = await self.workshop.conversations.send(
            new_operation_id(), self.id, actor="me", text=text, is_hurried=is_hurried
        )
        return sent.turn

    async def start(self, turn: TurnId, n: int) -> StepWriter:
        """A model step."""
        return await start_step(
            self.workshop.conversations,
            self.id,
            turn=turn,
            step=step_id(turn, n),
            attempt=1,
            kind="model",
            name="demo:",
            actor="agent:coder",
        )

    async def interrupt(self, turn: TurnId) -> None:
        await self.say(turn, TurnInterrupted(), TurnFinished(outcome="interrupted"))

    def scribe(self) -> Scribe:
        return Scribe(self.workshop.conversations, Views(self.workshop.conversations, {}))


@asynccontextmanager
async def holding(agents: HeldAgents) -> AsyncIterator[None]:
    """Inside, whoever asks `agents` stands still; afterwards it goes on."""
    with anyio.fail_after(60):
        await agents.is_asked.wait()
    yield
    agents.may_answer.set()


async def test_a_tool_of_a_turn_that_was_ended_meanwhile_is_neither_requested_nor_run(workshop: Workshop) -> None:
    talk, turn = await asked_to_run(workshop)

    async def end() -> None:
        await talk.interrupt(turn)

    plan, since = await run_while(talk, turn, end)
    assert plan.nothing, "somebody else has ended the turn: that is no failure"
    assert since == []
    assert await workshop.exec(talk.id, "ls") == "before\n"


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_tool_that_was_left_undone_for_a_message_meanwhile_is_neither_requested_nor_run(
    workshop: Workshop, *, is_answered: bool
) -> None:
    """The model was told that it was not run."""
    talk, turn = await asked_to_run(workshop)

    async def hurry() -> None:
        await talk.send("something else", is_hurried=True)
        writer = await talk.start(turn, 3)
        if is_answered:
            await writer.seal(ModelResponded(text="So I do.", model="demo:"))

    plan, since = await run_while(talk, turn, hurry)
    assert (plan.model is not None, plan.finish is not None) == (not is_answered, is_answered)
    assert since == []
    assert await workshop.exec(talk.id, "ls") == "before\n"


async def test_a_tool_is_begun_though_others_wrote_meanwhile(workshop: Workshop) -> None:
    talk, turn = await asked_to_run(workshop)

    async def speak() -> None:
        await talk.send("and then this")

    plan, since = await run_while(talk, turn, speak)
    assert plan.model is not None
    assert since[:2] == ["step.started", "tool.requested"]
    assert since[-1] == "tool.finished"
    assert await workshop.exec(talk.id, "ls") == "before\ndone\n"


async def asked_to_run(workshop: Workshop) -> tuple[Talk, TurnId]:
    """A turn with an answer that calls a tool."""
    talk = Talk(workshop, await workshop.converse())
    turn = await talk.send("do it")
    await workshop.call(talk.id, "write_file", path="before", content="the machine is there")
    await begin(talk, turn)
    writer = await talk.start(turn, 1)
    await writer.seal(ModelResponded(text="", model="demo:", tool_calls=[RUN]))
    return talk, turn


async def run_while(talk: Talk, turn: TurnId, meanwhile: Callable[[], Awaitable[None]]) -> tuple[Plan, list[str]]:
    """Run the tool; its worker stands still after its look while the others do that. The plan, and what it wrote."""
    agents, scribe = HeldAgents(), talk.scribe()
    plan = scribe.views.decide(await scribe.views.catch_up(talk.id))
    [tool] = plan.tools
    task = ToolTask(conversation=talk.id, turn=turn, tool=tool)
    returned: list[Plan] = []

    async def stand_still() -> None:
        tools = ToolActivities(scribe, agents, talk.workshop.parts)
        returned.append(await ActivityEnvironment().run(tools.run_tool, task))

    async with anyio.create_task_group() as group:
        group.start_soon(stand_still)
        async with holding(agents):
            await meanwhile()
            before = await talk.workshop.types(talk.id)
    return returned[0], (await talk.workshop.types(talk.id))[len(before) :]


async def test_a_turn_that_was_ended_before_it_began_does_not_begin(workshop: Workshop) -> None:
    talk = Talk(workshop, await workshop.converse())
    turn = await talk.send("do it")
    agents = HeldAgents()
    returned: list[Plan] = []

    async def stand_still() -> None:
        returned.append(await look(talk, agents))

    async with anyio.create_task_group() as group:
        group.start_soon(stand_still)
        async with holding(agents):
            await talk.interrupt(turn)
    assert returned[0].nothing
    assert (await workshop.types(talk.id))[-2:] == ["turn.interrupted", "turn.finished"]
    assert (await workshop.conversations.get(talk.id)).turn is None


async def begin(talk: Talk, turn: TurnId) -> None:
    agents = HeldAgents()
    agents.may_answer.set()
    plan = await look(talk, agents)
    assert (plan.turn, plan.model is None) == (turn, False)


async def look(talk: Talk, agents: HeldAgents) -> Plan:
    task = LookTask(conversation=talk.id, run="run")
    return await ActivityEnvironment().run(PlanActivities(talk.scribe(), agents).plan, task)
