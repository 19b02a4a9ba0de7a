"""The layer put together: big payloads, forks and archives as a reader meets them."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from outlive.base import ConflictError, ConversationId, InvalidError, NotFoundError, new_operation_id, new_step_id
from outlive.conversation.conversations import Conversations
from outlive.conversation.events import Event, ModelResponded
from outlive.conversation.position import START, Position
from outlive.conversation.writer import start_step
from rooms import Room, open_embedded_room

pytestmark = pytest.mark.anyio

ACTOR = "prin_test"
BIG = "this does not fit a row " * 10_000


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_embedded_room(tmp_path) as opened:
        yield opened


@pytest.fixture
def conversations(room: Room) -> Conversations:
    return room.conversations


async def make(conversations: Conversations) -> ConversationId:
    return (await conversations.create(new_operation_id(), actor=ACTOR, title="one")).id


async def send(conversations: Conversations, conversation: ConversationId, text: str) -> int:
    return (await conversations.send(new_operation_id(), conversation, actor=ACTOR, text=text)).seq


async def test_a_big_payload_goes_to_the_object_store_and_comes_back_whole(
    tmp_path: Path, conversations: Conversations
) -> None:
    conversation = await make(conversations)
    await send(conversations, conversation, BIG)
    await send(conversations, conversation, "small")
    [_, big, small] = await conversations.read(conversation, 0, 10)
    assert (big.data["text"], small.data["text"]) == (BIG, "small")
    with sqlite3.connect(tmp_path / "outlive.db") as database:
        rows = database.execute("SELECT data, blob FROM events ORDER BY place").fetchall()
    database.close()
    assert [(bool(data), bool(blob)) for data, blob in rows] == [(True, False), (False, True), (True, False)]
    assert (await conversations.blobs.get(rows[1][1])).decode() == big.data_json


async def test_a_follower_is_shown_a_big_payload_whole(conversations: Conversations) -> None:
    conversation = await make(conversations)
    async with conversations.follow(conversation, START) as following:
        await send(conversations, conversation, BIG)
        shown: list[Event] = []
        with anyio.fail_after(10):
            while len(shown) < 2:
                shown += [frame.body for frame in await following.next_frames() if isinstance(frame.body, Event)]
    assert shown[1].data["text"] == BIG


async def test_a_read_of_very_big_events_is_bounded_and_goes_on(conversations: Conversations) -> None:
    conversation = await make(conversations)
    texts = [f"{number} " * 2_000_000 for number in range(12)]  # 4 MB each
    for text in texts:
        await send(conversations, conversation, text)
    found: list[Event] = []
    reads = 0
    while page := await conversations.read(conversation, found[-1].seq if found else 0, 1_000):
        found += page
        reads += 1
        assert sum(len(event.data_json) for event in page) < 40_000_000
    assert reads > 1
    assert [event.data.get("text") for event in found] == [None, *texts]


async def test_a_fork_shares_the_past_and_goes_its_own_way(conversations: Conversations) -> None:
    parent = await make(conversations)
    for text in ("one", "two", "three"):
        await send(conversations, parent, text)
    fork = await conversations.create(new_operation_id(), actor=ACTOR, title="fork", parent=(parent, 3))
    await send(conversations, fork.id, "other")
    shared, own = await conversations.read(parent, 0, 3), await conversations.read(fork.id, 0, 10)
    assert own[:3] == shared
    assert [(event.seq, event.type) for event in own[3:]] == [(4, "conversation.created"), (5, "message.sent")]
    texts = [item["text"] for item in (await conversations.transcript(fork.id)).to_json()["items"] if "text" in item]
    assert texts == ["one", "two", "other"]
    assert (await conversations.get(parent)).head == 4


async def test_what_a_fork_left_open_is_not_shown_as_going_on(conversations: Conversations) -> None:
    parent = await make(conversations)
    step = await start_step(
        conversations, parent, turn=None, step=new_step_id(), attempt=1, kind="model", name="demo:", actor=ACTOR
    )
    fork = await conversations.create(new_operation_id(), actor=ACTOR, parent=(parent, 2))
    await step.seal(ModelResponded(text="only in the parent", model="demo:"))
    states = [
        [item.get("state") for item in (await conversations.transcript(each)).to_json()["items"]]
        for each in (parent, fork.id)
    ]
    assert states == [["sealed"], ["abandoned", None]]


async def test_an_archived_conversation_is_readable_hidden_and_takes_no_message(conversations: Conversations) -> None:
    conversation = await make(conversations)
    await send(conversations, conversation, "before")
    for _ in range(2):
        await conversations.archive(conversation, actor=ACTOR)
    with pytest.raises(ConflictError):
        await send(conversations, conversation, "after")
    assert await conversations.list(limit=10) == []
    assert [each.id for each in await conversations.list(limit=10, archived=True)] == [conversation]
    types = [event.type for event in await conversations.read(conversation, 0, 10)]
    assert types == ["conversation.created", "message.sent", "conversation.archived"]


async def test_a_position_beyond_the_end_is_refused(conversations: Conversations) -> None:
    conversation = await make(conversations)
    with pytest.raises(InvalidError):
        async with conversations.follow(conversation, Position(2)):
            raise AssertionError
    with pytest.raises(NotFoundError):
        async with conversations.follow(ConversationId("conv_" + "0" * 32), START):
            raise AssertionError
