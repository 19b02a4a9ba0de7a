"""Running a message: everything of its turn and nothing beyond it, whatever others say and whatever is cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from eventually import eventually
from integration.api.stack import ACTOR, TOKEN, Api, open_api
from integration.client.proxy import WHOLE, Fate, open_proxy
from outlive.base import ConflictError, ConversationId, TurnId, UnavailableError, new_step_id, to_text
from outlive.client import AsyncClient, Client
from outlive.conversation import Append, EventData, NewEvent
from outlive.conversation.events import ModelResponded, TurnFinished, TurnStarted

pytestmark = pytest.mark.anyio

WHOLE_TURN = ["message.sent", "turn.started", "step.started", "model.responded", "turn.finished"]


@pytest.fixture
async def client(api: Api) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(api.url, TOKEN) as client:
        yield client


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        yield api


async def append(api: Api, conversation: str, turn: TurnId, *data: EventData) -> None:
    events = tuple(NewEvent(each, to_text(api.parts.clock.now())) for each in data)
    key = f"{turn}/{data[0].type}"
    await api.conversations.append(Append(ConversationId(conversation), events, key=key, actor=ACTOR, turn=turn))


async def answer(api: Api, conversation: str, text: str = "Said.", outcome: str = "done") -> None:
    """The turn that is open, as a worker writes it; the first attempt of its step is given up."""

    async def is_open() -> bool:
        return (await api.conversations.get(ConversationId(conversation))).turn is not None

    await eventually(is_open, within_s=30)
    turn = (await api.conversations.get(ConversationId(conversation))).turn
    assert turn is not None
    await append(api, conversation, turn, TurnStarted(agent="a", version=1, model="demo:"))
    step = new_step_id()
    (await api.start_step(conversation, step)).delta("dead ")
    writer = await api.start_step(conversation, step, attempt=2)
    for piece in text:
        writer.delta(piece)
    await writer.seal(ModelResponded(text=text, model="demo:"))
    await append(api, conversation, turn, TurnFinished.model_validate({"outcome": outcome}))


@asynccontextmanager
async def answering(api: Api, conversation: str, **given: str) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(answer, api, conversation, **given))
        yield


async def test_a_run_is_its_turn_and_nothing_beyond_it(api: Api, client: AsyncClient) -> None:
    conversation = await client.conversations.create()
    for number in range(2):
        with anyio.fail_after(30):
            async with answering(api, conversation.id):
                run = conversation.run(f"Do {number}")
                events = [event async for event in run]
        durable = [event.type for event in events if event.seq is not None]
        assert durable == [*WHOLE_TURN[:3], "step.started", *WHOLE_TURN[3:]]
        assert events[0].data["text"] == f"Do {number}"
        assert {event.turn for event in events} == {run.sent.turn_id if run.sent else None}
        assert run.outcome == "done"
        assert await run.next_events() == []
    # What a run left is where one goes on.
    sent = await conversation.send("next")
    following = conversation.follow(run.position)
    assert (await following.next_event()).seq == sent.seq
    await following.aclose()


async def test_a_run_through_cut_connections_says_each_thing_once(api: Api) -> None:
    fates = [WHOLE, Fate(700), Fate(1_500)]
    async with (
        open_proxy(api.address[1], lambda number: fates[number % 3] if number < 60 else WHOLE) as proxy,
        AsyncClient(proxy.url, TOKEN) as client,
    ):
        conversation = await client.conversations.create()
        with anyio.fail_after(60):
            async with answering(api, conversation.id, text="x" * 200):
                events = [event async for event in conversation.run("Do")]
        seqs = [event.seq for event in events if event.seq is not None]
        assert seqs == list(range(seqs[0], seqs[0] + 6))
        assert events[-1].type == "turn.finished"
        assert proxy.cuts > 0


async def test_a_run_ends_with_the_outcome_of_its_turn(api: Api, client: AsyncClient) -> None:
    conversation = await client.conversations.create()
    with anyio.fail_after(30):
        async with answering(api, conversation.id, outcome="failed"):
            run = conversation.run("Do", deltas=False)
            events = [event async for event in run]
    assert run.outcome == "failed"
    assert "model.delta" not in {event.type for event in events}


async def test_a_sync_run_has_sent_its_message_before_anything_is_asked_of_it(api: Api) -> None:
    def use() -> list[str]:
        with Client(api.url, TOKEN) as client:
            conversation = client.conversations.create()
            events = conversation.run("Do")
            assert conversation.refresh().state == "running"
            anyio.from_thread.run(answer, api, conversation.id)
            return [event.type for event in events if event.seq is not None]

    with anyio.fail_after(30):
        types = await anyio.to_thread.run_sync(use)
    assert types == [*WHOLE_TURN[:3], "step.started", *WHOLE_TURN[3:]]


async def test_there_is_nothing_to_interrupt_without_a_turn_and_nobody_without_a_loop(
    api: Api, client: AsyncClient
) -> None:
    conversation = await client.conversations.create()
    with pytest.raises(ConflictError) as nothing:
        await conversation.interrupt()
    assert nothing.value.code == "turn.none_open"
    await conversation.send("Do")
    async with AsyncClient(api.url, TOKEN, deadline_s=1) as hasty:
        with pytest.raises(UnavailableError) as nobody:
            await (await hasty.conversations.get(conversation.id)).interrupt("enough")
    assert nobody.value.code == "loop.off"


async def test_agents_and_blobs_are_in_both_clients(api: Api, client: AsyncClient) -> None:
    definition = {"name": "reviewer", "model": "demo:", "instructions": "Review.", "tools": ["shell"]}
    made = await client.agents.apply(definition)
    assert (made.name, made.version, made.tools, made.builtin) == ("reviewer", 1, ("shell",), False)

    def use() -> None:
        with Client(api.url, TOKEN) as client:
            assert client.agents.apply(definition) == made
            assert client.agents.get("reviewer") == client.agents.get("reviewer", 1) == made
            assert [each.name for each in client.agents.list()] == ["coder", "reviewer"]
            assert client.blobs.get(client.blobs.put(b"\x00bytes")) == b"\x00bytes"

    await anyio.to_thread.run_sync(use)
