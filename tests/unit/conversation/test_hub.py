"""The hub beside a transport that a test plays, and the outbox that every transport sends from."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from outlive.base import ConversationId, InvalidError, StepId
from outlive.conversation.backends.signals import Frames, Outbox, decode_signals, encode_signals, frame
from outlive.conversation.blobs import INLINE_LIMIT
from outlive.conversation.events import Delta, Event
from outlive.conversation.feed import FOLLOWER_LIMIT, Grown, Lagged, Signal
from outlive.conversation.hub import POLL_CHUNK, FeedHub, open_tasks
from outlive.testing.feed import KnownHeads, make_delta, make_event, receive_until, wait_for

pytestmark = pytest.mark.anyio

_CONVERSATION = ConversationId("conv_1")
_STEP = StepId("step_1")


class PlayedTransport:
    """Says what the test says."""

    def __init__(self) -> None:
        self.followed: list[ConversationId] = []
        self.answers_at_once = True
        self.hub: FeedHub

    def publish(self, conversation: ConversationId, signals: Sequence[Signal]) -> None:
        self.hub.hear(conversation, signals)

    async def flush(self) -> None:
        pass

    def follow(self, conversation: ConversationId) -> None:
        self.followed.append(conversation)
        if self.answers_at_once:
            self.hub.take_snapshot(conversation, [make_delta(_STEP, 1, 0, "before")])

    def leave(self, conversation: ConversationId) -> None:
        self.followed.remove(conversation)


@asynccontextmanager
async def _hub(heads: KnownHeads | None = None) -> AsyncIterator[tuple[FeedHub, PlayedTransport]]:
    transport = PlayedTransport()
    hub = transport.hub = FeedHub(transport, heads or KnownHeads())
    async with open_tasks() as tasks:
        tasks.start_soon(hub.run)
        yield hub, transport


async def test_a_conversation_is_followed_once_however_many_subscribe_and_left_with_the_last() -> None:
    async with _hub() as (hub, transport):
        hub.set_there(True)
        async with hub.subscribe(_CONVERSATION) as first:
            async with hub.subscribe(_CONVERSATION) as second:
                assert transport.followed == [_CONVERSATION]
                hub.publish(_CONVERSATION, [make_event(1)])
                [one], [other] = await first.receive(), await second.receive()
                assert one is other  # decoded once, handed to all
            assert transport.followed == [_CONVERSATION]
            assert [delta.text for delta in first.retained()] == ["before"]
        assert transport.followed == []
        assert first.retained() == []


async def test_an_error_inside_leaves_as_itself() -> None:
    error = InvalidError("test.wrong", "Something is wrong.")
    with pytest.raises(InvalidError) as caught:
        async with _hub() as (hub, _), hub.subscribe(_CONVERSATION):
            raise error
    assert caught.value is error


async def test_a_first_subscription_waits_for_the_snapshot() -> None:
    async with _hub() as (hub, transport), anyio.create_task_group() as tasks:
        hub.set_there(True)
        transport.answers_at_once = False

        async def answer() -> None:
            while not transport.followed:
                await anyio.lowlevel.checkpoint()
            hub.take_snapshot(_CONVERSATION, [make_delta(_STEP, 1, 0, "here")])
            hub.hear(_CONVERSATION, [make_delta(_STEP, 1, 4, "!")])

        tasks.start_soon(answer)
        async with hub.subscribe(_CONVERSATION) as subscription:
            assert [delta.text for delta in subscription.retained()] == ["here!"]
            assert await subscription.receive() == [make_delta(_STEP, 1, 4, "!")]


async def test_a_snapshot_that_comes_late_is_told() -> None:
    async with _hub() as (hub, transport):
        hub.set_there(False)
        transport.answers_at_once = False
        async with hub.subscribe(_CONVERSATION) as subscription:
            assert subscription.retained() == []
            hub.set_there(True)
            hub.take_snapshot(_CONVERSATION, [make_delta(_STEP, 1, 0, "late")])
            assert await subscription.receive() == [Lagged()]
            assert [delta.text for delta in subscription.retained()] == ["late"]


async def test_a_transport_that_goes_away_lets_a_waiting_subscription_in() -> None:
    async with _hub() as (hub, transport), anyio.create_task_group() as tasks:
        hub.set_there(True)
        transport.answers_at_once = False

        async def go() -> None:
            while not transport.followed:
                await anyio.lowlevel.checkpoint()
            hub.set_there(False)

        tasks.start_soon(go)
        with anyio.fail_after(0.9):
            async with hub.subscribe(_CONVERSATION):
                pass


async def test_a_full_queue_is_emptied_and_its_follower_told() -> None:
    async with _hub() as (hub, _), hub.subscribe(_CONVERSATION) as subscription:
        for seq in range(1, FOLLOWER_LIMIT + 3):
            hub.publish(_CONVERSATION, [make_event(seq)])
        heard = await subscription.receive()
        assert heard[0] == Lagged()
        assert [one.seq for one in heard[1:] if isinstance(one, Event)] == [FOLLOWER_LIMIT + 2]


async def test_an_event_without_its_payload_is_the_news_that_the_log_has_grown() -> None:
    async with _hub() as (hub, _), hub.subscribe(_CONVERSATION) as subscription:
        hub.publish(_CONVERSATION, [make_event(4, "model.responded", _STEP, data_json="")])
        assert await subscription.receive() == [Grown(4)]
        assert subscription.retained() == []  # it sealed the step all the same


async def test_the_poller_looks_at_all_in_few_looks_and_tells_each_only_once() -> None:
    sizes: list[int] = []

    class Counted(KnownHeads):
        async def __call__(self, conversations: Collection[ConversationId]) -> dict[ConversationId, int]:
            sizes.append(len(conversations))
            return await super().__call__(conversations)

    heads, names = Counted(), [ConversationId(f"conv_{number}") for number in range(POLL_CHUNK + 10)]
    async with _hub(heads) as (hub, _), anyio.create_task_group() as tasks:
        hub.set_there(False)
        ready = anyio.Event()

        async def follow(name: ConversationId) -> None:
            async with hub.subscribe(name):
                await ready.wait()

        for name in names[1:]:
            tasks.start_soon(follow, name)
        async with hub.subscribe(names[0]) as subscription:
            heads.heads[names[0]] = 5
            assert await receive_until(subscription, bool) == [Grown(5)]
            looks = heads.asked
            await wait_for(lambda: heads.asked >= looks + 4)  # two more rounds
            heads.heads[names[0]] = 6
            assert await receive_until(subscription, bool) == [Grown(6)]
            assert POLL_CHUNK in sizes
            assert 10 in sizes
        ready.set()


async def test_the_poller_does_not_look_while_nobody_follows() -> None:
    heads = KnownHeads()
    async with _hub(heads) as (hub, _):
        hub.set_there(False)
        async with hub.subscribe(_CONVERSATION):
            await wait_for(lambda: heads.asked > 0)
        await anyio.wait_all_tasks_blocked()
        before = heads.asked
        with anyio.move_on_after(0.6):
            await anyio.sleep_forever()
        assert heads.asked <= before + 1  # the one that was due


def _taken(outbox: Outbox) -> list[Event | Delta | Grown]:
    return [signal for _, body in outbox.take(2**30) for signal in decode_signals(body)]


async def test_deltas_that_have_not_left_yet_are_merged() -> None:
    outbox = Outbox()
    for offset in range(50_000):
        outbox.put(_CONVERSATION, [make_delta(_STEP, 1, offset, "x")])
    outbox.put(_CONVERSATION, [make_event(2), make_delta(_STEP, 1, 50_000, "y"), make_delta(_STEP, 9, 0, "z")])
    taken = _taken(outbox)
    assert [(one.start, one.offset, len(one.text)) for one in taken if isinstance(one, Delta)] == [
        (1, 0, 50_000),
        (1, 50_000, 1),
        (9, 0, 1),
    ]
    assert isinstance(taken[1], Event)
    assert (outbox.size, bool(outbox)) == (0, False)


async def test_a_long_delta_is_cut_into_parts_that_fit_and_the_outbox_counts_right() -> None:
    outbox = Outbox()
    outbox.put(_CONVERSATION, [make_delta(_STEP, 1, 3, "ab" * 150_000)])
    bodies = outbox.take(2**30)
    taken = [one for _, body in bodies for one in decode_signals(body) if isinstance(one, Delta)]
    assert "".join(one.text for one in taken) == "ab" * 150_000
    assert [one.offset for one in taken[1:]] == [one.end for one in taken[:-1]]
    assert max(len(body) for _, body in bodies) < 512 * 1024
    assert outbox.size == 0


async def test_a_full_outbox_drops_deltas_and_keeps_how_far_each_log_reaches() -> None:
    outbox = Outbox(limit=100_000)
    other = ConversationId("conv_2")
    outbox.put(other, [make_event(3)])
    for seq in range(1, 200):
        outbox.put(_CONVERSATION, [make_event(seq), make_delta(_STEP, seq, 0, "x" * 1000)])
        assert outbox.size <= 100_000
    taken = outbox.take(2**30)
    heads = {
        name: max(one.seq if isinstance(one, Event) else one.head for one in signals if not isinstance(one, Delta))
        for name, signals in ((name, decode_signals(body)) for name, body in taken)
    }
    assert heads == {_CONVERSATION: 199, other: 3}


async def test_a_full_outbox_of_nothing_but_heads_forgets_the_oldest() -> None:
    outbox = Outbox(limit=50_000)
    for number in range(1000):
        outbox.put(ConversationId(f"conv_{number}"), [make_event(1)])
        assert outbox.size <= 50_000
    assert "conv_999" in dict(outbox.take(2**30))


async def test_an_event_too_big_for_the_feed_leaves_without_its_payload() -> None:
    outbox = Outbox()
    whole, big = "x" * INLINE_LIMIT, "x" * (INLINE_LIMIT + 1)
    blob = make_event(3, data_json="{}")._replace(blob="b3_0")
    outbox.put(_CONVERSATION, [make_event(1, data_json=whole), make_event(2, data_json=big), blob])
    assert [len(one.data_json) for one in _taken(outbox) if isinstance(one, Event)] == [INLINE_LIMIT, 0, 0]


async def test_signals_come_back_as_they_were() -> None:
    signals: list[Event | Delta | Grown] = [
        make_event(1, "step.started", _STEP),
        make_delta(_STEP, 1, 7, "é\x00\U0001f600", "stdout"),
        Grown(9),
    ]
    assert decode_signals(encode_signals(signals)) == signals


async def test_frames_are_cut_right_wherever_the_bytes_are_cut() -> None:
    bodies = [b"a", b"", b"bc" * 100]
    stream = b"".join(frame(body) for body in bodies)
    for size in (1, 3, 7, len(stream)):
        frames = Frames()
        found = [body for at in range(0, len(stream), size) for body in frames.feed(stream[at : at + size])]
        assert found == bodies
    with pytest.raises(InvalidError):
        Frames().feed(b"\xff\xff\xff\xff")
