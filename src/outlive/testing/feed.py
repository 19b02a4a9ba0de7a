"""What every feed promises, whatever carries its signals: subclass `FeedContract` and give it a `place` fixture.

The writer is another process wherever that matters, and the transport is killed as a power cut would kill it.
"""

import asyncio
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Literal, Protocol

import anyio
import anyio.abc

from outlive.base import (
    ConversationId,
    StepId,
    TurnId,
    UnavailableError,
    new_conversation_id,
    new_event_id,
    new_step_id,
)
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.redis_feed import open_redis_feed
from outlive.conversation.blobs import INLINE_LIMIT
from outlive.conversation.events import Delta, Event
from outlive.conversation.feed import FOLLOWER_LIMIT, RETAINED_CHARACTERS, Feed, Grown, Lagged, Subscription
from outlive.conversation.hub import Heads

_AT = "2030-01-02T03:04:05.000006Z"
_SOON_S = 10.0


class FeedPlace(Protocol):
    """A transport of one kind, in a process of its own. It is running when a test gets it."""

    kind: Literal["local", "redis"]
    address: str

    async def start(self) -> None: ...

    async def kill(self) -> None: ...


class KnownHeads:
    """What the log would answer."""

    def __init__(self) -> None:
        self.heads: dict[ConversationId, int] = {}
        self.failures = 0
        self.asked = 0

    async def __call__(self, conversations: Collection[ConversationId]) -> dict[ConversationId, int]:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise UnavailableError("log.unavailable", "The log is away.")
        return {one: self.heads[one] for one in conversations if one in self.heads}


def open_feed(place: FeedPlace, heads: Heads | None = None) -> AbstractAsyncContextManager[Feed]:
    return open_feed_at(place.kind, place.address, heads or KnownHeads())


def open_feed_at(kind: str, address: str, heads: Heads) -> AbstractAsyncContextManager[Feed]:
    return open_local_feed(Path(address), heads) if kind == "local" else open_redis_feed(address, heads)


def make_event(
    seq: int, type: str = "message.sent", step: StepId | None = None, data_json: str = '{"text":"x"}'
) -> Event:
    attempt = 1 if step else None
    return Event(seq, new_event_id(), TurnId("turn_1"), step, attempt, type, 1, _AT, "me", data_json, None)


def make_delta(step: StepId, start: int, offset: int, text: str, stream: str | None = None) -> Delta:
    kind: Literal["model.delta", "tool.output"] = "tool.output" if stream else "model.delta"
    return Delta(start, offset, TurnId("turn_1"), step, 1, kind, text, "call" if stream else None, stream, _AT, "me")


async def receive_until(
    subscription: Subscription, is_enough: Callable[[list[Event | Delta | Grown | Lagged]], bool]
) -> list[Event | Delta | Grown | Lagged]:
    """All that comes, until it is enough."""
    heard: list[Event | Delta | Grown | Lagged] = []
    with anyio.fail_after(_SOON_S):
        while not is_enough(heard):
            heard += await subscription.receive()
    return heard


async def wait_for(condition: Callable[[], bool], within_s: float = _SOON_S) -> None:
    """Return as soon as `condition` holds; fail if it does not within `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        if condition():
            return
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        await anyio.sleep(0.01)


def text_of(heard: Sequence[object], start: int) -> str:
    return "".join(one.text for one in heard if isinstance(one, Delta) and one.start == start)


def _seqs(heard: Sequence[object]) -> list[int]:
    return [one.seq for one in heard if isinstance(one, Event)]


def _has_head(head: int) -> Callable[[Sequence[object]], bool]:
    """Whether the news that the log reaches `head` is among what was heard, in whatever form."""

    def reaches(one: object) -> bool:
        return (isinstance(one, Event) and one.seq >= head) or (isinstance(one, Grown) and one.head >= head)

    return lambda heard: any(map(reaches, heard))


_CHILD = "from outlive.testing.feed import write_as_child; write_as_child()"
_CHILD_STEP = StepId("step_00000000000000000000000000000001")
_CHILD_ROUNDS = 200


def write_as_child() -> None:
    """What the writing process does: rounds of one event and some deltas, and a last event."""
    kind, address, conversation = sys.argv[1:4]

    async def write() -> None:
        async with open_feed_at(kind, address, KnownHeads()) as feed:
            offset = 0
            for number in range(1, _CHILD_ROUNDS + 1):
                feed.publish(ConversationId(conversation), [make_event(number + 1)])
                for word in ("a", "b", str(number)):
                    feed.publish(ConversationId(conversation), [make_delta(_CHILD_STEP, 1, offset, word)])
                    offset += len(word)
                if number % 10 == 0:
                    await feed.flush()
            feed.publish(ConversationId(conversation), [make_event(_CHILD_ROUNDS + 2)])
            await feed.flush()

    anyio.run(write)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class FeedContract:
    async def test_a_writer_in_another_process_is_heard_in_order(self, place: FeedPlace) -> None:
        conversation = new_conversation_id()
        async with open_feed(place) as feed, feed.subscribe(conversation) as subscription:
            child = [sys.executable, "-c", _CHILD, place.kind, place.address, conversation]
            with anyio.fail_after(30):
                done = await anyio.run_process(child, stdout=None, stderr=subprocess.PIPE, check=False)
            assert done.returncode == 0, done.stderr.decode()
            heard = await receive_until(subscription, _has_head(_CHILD_ROUNDS + 2))

            assert _seqs(heard) == list(range(2, _CHILD_ROUNDS + 3))
            expected = "".join(f"ab{number}" for number in range(1, _CHILD_ROUNDS + 1))
            assert text_of(heard, 1) == expected
            ends = [one.end for one in heard if isinstance(one, Delta)]
            assert ends == sorted(ends)
            # ... and each delta came after the event that was published before it.
            at = [i for i, one in enumerate(heard) if isinstance(one, Event) and one.seq == 101]
            assert text_of(heard[: at[0]], 1) == "".join(f"ab{number}" for number in range(1, 100))
            # Whoever comes now gets it in one piece.
            assert [(one.offset, one.text) for one in subscription.retained()] == [(0, expected)]

    async def test_a_late_subscriber_gets_what_was_streamed(self, place: FeedPlace) -> None:
        conversation, model, tool = new_conversation_id(), new_step_id(), new_step_id()
        async with open_feed(place) as writer, open_feed(place) as reader:
            async with writer.subscribe(conversation) as witness:
                writer.publish(conversation, [make_event(1, "step.started", model)])
                writer.publish(conversation, [make_event(2, "step.started", tool)])
                for offset in range(0, 900, 3):
                    writer.publish(conversation, [make_delta(model, 1, offset, "abc")])
                writer.publish(
                    conversation, [make_delta(tool, 2, 0, "out ", "stdout"), make_delta(tool, 2, 4, "err", "stderr")]
                )
                writer.publish(conversation, [make_delta(tool, 2, 7, "out", "stdout"), make_event(3)])
                await receive_until(witness, _has_head(3))
            async with reader.subscribe(conversation) as late:
                retained = [(one.start, one.offset, one.text, one.stream) for one in late.retained()]
                assert retained == [
                    (1, 0, "abc" * 300, None),
                    (2, 0, "out ", "stdout"),
                    (2, 4, "err", "stderr"),
                    (2, 7, "out", "stdout"),
                ]
                writer.publish(conversation, [make_delta(model, 1, 900, "!")])
                heard = await receive_until(late, bool)
                assert text_of(heard, 1) == "!"
                assert late.retained()[0].text == "abc" * 300 + "!"

    async def test_retained_output_is_bounded_and_its_offsets_stay_right(self, place: FeedPlace) -> None:
        conversation, step = new_conversation_id(), new_step_id()
        line = "".join(chr(0x3B1 + i % 24) for i in range(1000))
        rounds = RETAINED_CHARACTERS // len(line) + 100
        async with open_feed(place) as writer, open_feed(place) as reader:
            async with writer.subscribe(conversation) as witness:
                for number in range(rounds):
                    writer.publish(conversation, [make_delta(step, 1, number * len(line), line)])
                writer.publish(conversation, [make_event(2)])
                await receive_until(witness, _has_head(2))
            async with reader.subscribe(conversation) as late:
                retained = late.retained()
                total = sum(len(one.text) for one in retained)
                assert 0.9 * RETAINED_CHARACTERS < total <= RETAINED_CHARACTERS
                assert retained[-1].end == rounds * len(line)
                assert text_of(retained, 1) == (line * rounds)[-total:]
                assert retained[0].offset == rounds * len(line) - total

    async def test_text_of_an_attempt_that_is_over_is_not_retained(self, place: FeedPlace) -> None:
        conversation = new_conversation_id()
        sealed, retried, open_, ended = new_step_id(), new_step_id(), new_step_id(), new_step_id()
        async with open_feed(place) as writer, open_feed(place) as reader:
            async with writer.subscribe(conversation) as witness:
                writer.publish(
                    conversation, [make_delta(ended, 1, 0, "of an older turn"), make_event(2, "turn.finished")]
                )
                for start, step in ((3, sealed), (4, retried), (5, open_)):
                    writer.publish(conversation, [make_delta(step, start, 0, "first")])
                big = "x" * (INLINE_LIMIT + 1)  # too big for the feed: what it ends has to be heard all the same
                writer.publish(conversation, [make_event(6, "model.responded", sealed, big)])
                writer.publish(conversation, [make_event(7, "step.started", retried)])
                writer.publish(conversation, [make_delta(retried, 7, 0, "second")])
                writer.publish(conversation, [make_delta(retried, 4, 5, "zombie"), make_delta(sealed, 3, 5, "zombie")])
                writer.publish(conversation, [make_event(8)])
                heard = await receive_until(witness, _has_head(8))
                assert Grown(6) in heard
            async with reader.subscribe(conversation) as late:
                assert [(one.start, one.text) for one in late.retained()] == [(5, "first"), (7, "second")]
                writer.publish(conversation, [make_event(9, "turn.interrupted")])
                await receive_until(late, _has_head(9))
                assert late.retained() == []

    async def test_a_slow_follower_is_bounded_and_a_quick_one_hears_everything(self, place: FeedPlace) -> None:
        conversation, count = new_conversation_id(), 6 * FOLLOWER_LIMIT
        async with (
            open_feed(place) as writer,
            open_feed(place) as reader,
            reader.subscribe(conversation) as slow,
            reader.subscribe(conversation) as quick,
            anyio.create_task_group() as tasks,
        ):
            heard: list[Event | Delta | Grown | Lagged] = []

            def newest() -> int:
                return heard[-1].seq if heard and isinstance(heard[-1], Event) else 0

            async def follow() -> None:
                while newest() < count:
                    heard.extend(await quick.receive())

            tasks.start_soon(follow)
            for first in range(1, count + 1, 64):
                writer.publish(conversation, [make_event(seq) for seq in range(first, first + 64)])
                await wait_for(lambda last=first + 63: newest() >= last)  # type: ignore[misc]
            assert _seqs(heard) == list(range(1, count + 1))
            assert Lagged() not in heard

            late = await slow.receive()
            assert late[0] == Lagged()
            assert len(late) <= FOLLOWER_LIMIT
            assert _seqs(late) == list(range(count - len(late) + 2, count + 1))  # what came since, without a hole

    async def test_events_are_heard_without_a_transport(self, place: FeedPlace) -> None:
        await place.kill()
        conversation, heads = new_conversation_id(), KnownHeads()
        heads.heads[conversation] = 3
        async with open_feed(place, heads) as feed:
            began_at = time.monotonic()
            async with feed.subscribe(conversation) as subscription:
                assert time.monotonic() - began_at < 1.5
                await receive_until(subscription, _has_head(3))
                for head in range(4, 9):
                    heads.heads[conversation] = head
                    grown_at = time.monotonic()
                    assert await receive_until(subscription, bool) == [Grown(head)]
                    assert time.monotonic() - grown_at < 2.0  # promised: 0.25, on a machine that is not busy

    async def test_an_event_whose_signal_was_lost_is_found_in_the_log(self, place: FeedPlace) -> None:
        conversation, heads = new_conversation_id(), KnownHeads()
        async with open_feed(place, heads) as feed, feed.subscribe(conversation) as subscription:
            feed.publish(conversation, [make_event(1)])
            await receive_until(subscription, _has_head(1))
            heads.heads[conversation] = 2
            assert await receive_until(subscription, bool) == [Grown(2)]

    async def test_a_log_that_is_away_is_asked_again(self, place: FeedPlace) -> None:
        await place.kill()
        conversation, heads = new_conversation_id(), KnownHeads()
        heads.failures = 3
        heads.heads[conversation] = 7
        async with open_feed(place, heads) as feed, feed.subscribe(conversation) as subscription:
            assert await receive_until(subscription, bool) == [Grown(7)]
            assert heads.asked >= 4

    async def test_a_transport_that_dies_and_comes_back_is_found_again(self, place: FeedPlace) -> None:
        conversation, step = new_conversation_id(), new_step_id()
        async with (
            open_feed(place) as writer,
            open_feed(place) as reader,
            reader.subscribe(conversation) as subscription,
        ):
            writer.publish(conversation, [make_event(1), make_delta(step, 1, 0, "before")])
            await receive_until(subscription, lambda heard: len(heard) == 2)
            for life in range(1, 3):
                await place.kill()
                writer.publish(conversation, [make_event(life * 10)])
                await place.start()
                heard = await receive_until(subscription, lambda heard: Lagged() in heard)
                writer.publish(conversation, [make_event(life * 10 + 1), make_delta(step, 1, life * 10, "after")])
                heard += await receive_until(subscription, _has_head(life * 10 + 1))
                assert life * 10 + 1 in _seqs(heard)
                await wait_for(lambda: "after" in text_of(subscription.retained(), 1))

    async def test_publishing_without_a_transport_neither_waits_nor_fails_and_is_bounded(
        self, place: FeedPlace
    ) -> None:
        await place.kill()
        conversation, step = new_conversation_id(), new_step_id()
        async with open_feed(place) as feed, feed.subscribe(conversation) as subscription:
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                began_at = time.monotonic()
                for number in range(1, 1001):  # 50 million characters of deltas, and a million of events
                    text = "x" * 50_000
                    feed.publish(conversation, [make_delta(step, 1, number * 50_000, text)])
                    feed.publish(conversation, [make_event(number, data_json='{"text":"%s"}' % ("y" * 1000))])
                    if number % 100 == 0:
                        await feed.flush()
                took_s = time.monotonic() - began_at
                grown = tracemalloc.get_traced_memory()[0] - before
            finally:
                tracemalloc.stop()
            assert took_s < 20.0  # it waits for nobody: that would be minutes
            assert grown < 16 * 1024 * 1024
            await place.start()
            await receive_until(subscription, _has_head(1000))

    async def test_thousands_of_idle_followers_cost_no_task_and_no_timer(self, place: FeedPlace) -> None:
        conversations = [new_conversation_id() for _ in range(2000)]
        async with open_feed(place) as feed, open_feed(place) as writer, AsyncExitStack() as stack:
            for mine in (feed, writer):  # connected, both
                async with mine.subscribe(conversations[0]) as first:
                    mine.publish(conversations[0], [make_event(1)])
                    await receive_until(first, bool)
            before, sockets = len(asyncio.all_tasks()), descriptors()
            subscriptions: dict[ConversationId, Subscription] = {}

            async def enter(mine: list[ConversationId]) -> None:
                for one in mine:
                    subscriptions[one] = await stack.enter_async_context(feed.subscribe(one))

            async with anyio.create_task_group() as tasks:
                for at in range(0, 2000, 100):
                    tasks.start_soon(enter, conversations[at : at + 100])
            assert len(asyncio.all_tasks()) - before <= 8  # one reader for each 256 of them at most
            assert descriptors() - sockets <= 8
            for one in conversations[::199]:
                published_at = time.monotonic()
                writer.publish(one, [make_event(2)])
                assert _seqs(await receive_until(subscriptions[one], bool)) == [2]
                assert time.monotonic() - published_at < 10.0

    async def test_closing_leaves_no_task_and_no_socket(self, place: FeedPlace) -> None:
        tasks = sockets = 0
        for life in range(4):
            if life == 1:  # the first may open what the event loop keeps
                tasks, sockets = len(asyncio.all_tasks()), descriptors()
            conversation = new_conversation_id()
            async with open_feed(place) as feed, feed.subscribe(conversation) as subscription:
                feed.publish(conversation, [make_event(1)])
                await receive_until(subscription, _has_head(1))
        await wait_for(lambda: len(asyncio.all_tasks()) <= tasks)
        await wait_for(lambda: descriptors() <= sockets)

    async def test_what_was_published_right_before_leaving_is_heard(self, place: FeedPlace) -> None:
        conversation = new_conversation_id()
        async with open_feed(place) as reader, reader.subscribe(conversation) as subscription:
            async with open_feed(place) as writer:
                writer.publish(conversation, [make_event(1)])
            assert _seqs(await receive_until(subscription, bool)) == [1]

    async def test_text_that_is_no_text_harms_nobody(self, place: FeedPlace) -> None:
        conversation, step = new_conversation_id(), new_step_id()
        async with open_feed(place) as feed, feed.subscribe(conversation) as subscription:
            feed.publish(conversation, [make_delta(step, 1, 0, "a\ud800\x00b"), make_event(2)])
            heard = await receive_until(subscription, _has_head(2))
            assert text_of(heard, 1) == "a\ufffd\x00b"
