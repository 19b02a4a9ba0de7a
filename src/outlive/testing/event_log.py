"""What every event log promises, whatever keeps it: subclass `EventLogContract` and give it a `place` fixture.

What it promises about the attempts of a step is in `fencing.py`; about what another log wrote meanwhile, in
`stale_memory.py`.
"""

import sys

import anyio
import pytest

from outlive.base import (
    ConflictError,
    FencedError,
    InvalidError,
    NotFoundError,
    OutliveError,
    UnavailableError,
    new_conversation_id,
    new_step_id,
    new_turn_id,
)
from outlive.conversation.events import (
    ConversationArchived,
    Event,
    MachineAttached,
    MessageSent,
    StepStarted,
)
from outlive.conversation.log import BATCH_LIMIT, READ_CHARACTERS, Append, Appended, EventLog
from outlive.testing import appending
from outlive.testing.appending import append_messages
from outlive.testing.conversations import (
    ACTOR,
    StorePlace,
    at,
    attempt_all,
    batch,
    message,
    new_conversation,
    seal,
    start,
    whole,
)
from outlive.testing.fencing import FencingContract
from outlive.testing.stale_memory import StaleMemoryContract

HOSTILE_TEXTS = [
    "",
    "a\x00b",
    "🧑‍🚀 naïve — ¿qué? שלום 漢字 \U0010ffff",
    "x" * 60_000,
    "\\u0000 'quoted' \"twice\" $1 %s {} --; DROP TABLE events",
    "\r\n\t\x1b[31m",
]


def check_from_many(events: list[Event], names: list[str], count: int) -> None:
    """Dense, nothing lost, nothing double, and each writer's own order kept."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    texts = [event.data["text"] for event in events if event.type == "message.sent"]
    assert len(texts) == len(names) * count
    for name in names:
        assert [text for text in texts if text.startswith(f"{name} ")] == [f"{name} {n}" for n in range(count)]


class EventLogContract(FencingContract, StaleMemoryContract):
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_read_of_big_events_stops_early_and_goes_on(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            for number in range(20):
                texts = [MessageSent(message="m", text=f"{number} " * 30_000) for _ in range(10)]
                await log.append(batch(conversation, *texts))
            seqs: list[int] = []
            reads = 0
            while page := await log.read(conversation, seqs[-1] if seqs else 0, 1_000):
                reads += 1
                seqs += [event.seq for event in page]
                assert sum(len(event.data_json) for event in page) < 2 * READ_CHARACTERS
            assert seqs == list(range(1, 202))
            assert reads > 1

    async def test_seq_is_dense_from_one_in_the_order_of_appends(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            for number in range(5):
                appended = await log.append(message(conversation, str(number)))
                assert (appended.seqs, appended.is_repeat) == ((number + 2,), False)
            events = await whole(log, conversation)
            assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
            assert [event.data["text"] for event in events[1:]] == ["0", "1", "2", "3", "4"]
            assert await log.head(conversation) == 6

    async def test_what_is_answered_is_what_is_read(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, step, turn = await new_conversation(catalog), new_step_id(), new_turn_id()
            first = await log.append(message(conversation, "hello", turn=turn))
            second = await log.append(start(conversation, step, 1, turn=turn))
            assert (await whole(log, conversation))[1:] == [*first.events, *second.events]
            assert second.events[0][2:8] == (turn, step, 1, "step.started", 1, first.events[0].at)

    async def test_a_batch_is_appended_whole(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            texts = [MessageSent(message="m", text=str(number)) for number in range(BATCH_LIMIT)]
            appended = await log.append(batch(conversation, *texts))
            assert appended.seqs == tuple(range(2, BATCH_LIMIT + 2))
            with pytest.raises(InvalidError, match="1 to"):
                await log.append(batch(conversation, *texts, texts[0]))
            assert await log.head(conversation) == BATCH_LIMIT + 1

    async def test_a_refused_batch_leaves_nothing(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            bad = batch(conversation, MessageSent(message="m", text="a"), StepStarted(kind="model", name="x"))
            with pytest.raises(InvalidError) as refused:
                await log.append(bad)
            assert refused.value.code == "append.needs_writer"
            assert [event.type for event in await whole(log, conversation)] == ["conversation.created"]

    async def test_a_repeated_batch_changes_nothing_and_gets_the_same_answer(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            texts = [MessageSent(message="m", text=str(number)) for number in range(3)]
            append = batch(conversation, *texts, key="once")
            first = await log.append(append)
            await log.append(message(conversation, "between"))
            again = await log.append(append)
            assert (again.events, again.is_repeat) == (first.events, True)
        async with at(place) as (log, _):
            later = await log.append(append)
            assert (later.events, later.is_repeat) == (first.events, True)
            assert await log.head(conversation) == 5

    async def test_a_batch_sent_many_times_at_once_is_appended_once(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            append = message(conversation, "hello", key="once")
            answers: list[Appended | OutliveError] = []

            async def send(through: EventLog) -> None:
                answers.extend(await attempt_all(through, [append] * 10))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, log)
                tasks.start_soon(send, other)
            assert all(isinstance(answer, Appended) and answer.seqs == (2,) for answer in answers)
            assert [answer.is_repeat for answer in answers if isinstance(answer, Appended)].count(False) == 1
            assert await log.head(conversation) == 2

    async def test_a_key_with_other_events_is_a_conflict(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, another = await new_conversation(catalog), await new_conversation(catalog)
            both = [message(conversation, "one", key="k"), message(conversation, "other", key="k")]
            answers = await attempt_all(log, both)
            assert isinstance(answers[0], Appended)
            assert isinstance(answers[1], ConflictError)
            with pytest.raises(ConflictError) as refused:
                await log.append(message(conversation, "third", key="k"))
            assert refused.value.code == "append.key_reused"
            assert (await log.append(message(another, "other", key="k"))).is_repeat is False

    async def test_what_another_writer_did_counts_at_once(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation, step = await new_conversation(catalog), new_step_id()
            await log.append(start(conversation, step, 1))
            for number in range(3):  # by turns, so that neither may rely on what it remembers
                assert (await other.append(message(conversation, "there"))).seqs == (3 + 2 * number,)
                assert (await log.append(message(conversation, "here"))).seqs == (4 + 2 * number,)
            repeated = message(conversation, "once")
            first = await other.append(repeated)
            assert (await log.append(repeated)) == (first.events, True)
            await other.append(start(conversation, step, 2))
            with pytest.raises(FencedError):
                await log.append(seal(conversation, step, 1))
            sealed = seal(conversation, step, 2)
            await log.append(sealed)
            assert (await other.append(sealed)).is_repeat
            with pytest.raises(ConflictError):
                await other.append(start(conversation, step, 3))
            await other.append(batch(conversation, ConversationArchived()))
            with pytest.raises(ConflictError):
                await log.append(message(conversation, "too late"))
            assert [event.seq for event in await whole(log, conversation)] == list(range(1, 13))

    async def test_what_is_meant_for_one_moment_is_refused_once_another_writer_moved_on(
        self, place: StorePlace
    ) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            for head in (1, 3, 5):
                meant = message(conversation, "the end")._replace(expect=head)
                await other.append(message(conversation, "wait"))
                with pytest.raises(ConflictError) as refused:
                    await log.append(meant)
                assert (refused.value.code, refused.value.facts) == ("append.moved", {"head": head + 1})
                assert (await log.append(meant._replace(expect=head + 1))).seqs == (head + 2,)
                assert (await other.append(meant._replace(expect=head + 1))).is_repeat

    async def test_of_many_that_are_meant_for_one_moment_one_is_appended(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            outcomes: list[str] = []

            async def end(writer: EventLog, name: str) -> None:
                try:
                    await writer.append(message(conversation, name)._replace(expect=1))
                    outcomes.append("appended")
                except ConflictError as error:
                    outcomes.append(error.code)

            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(end, (log, other)[number % 2], str(number))
            assert sorted(outcomes) == ["append.moved"] * 7 + ["appended"]
            assert await log.head(conversation) == 2

    async def test_many_writers_of_one_conversation_neither_lose_nor_double(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversation = await new_conversation(catalog)
            names = [f"w{number}" for number in range(8)]
            async with anyio.create_task_group() as tasks:
                for number, name in enumerate(names):
                    tasks.start_soon(append_messages, (log, other)[number % 2], conversation, name, 10)
            check_from_many(await whole(log, conversation), names, 10)

    async def test_writers_of_many_conversations_do_not_mix(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (other, _):
            conversations = [await new_conversation(catalog) for _ in range(12)]
            async with anyio.create_task_group() as tasks:
                for number, conversation in enumerate(conversations):
                    tasks.start_soon(append_messages, log, conversation, f"a{number}", 8)
                    tasks.start_soon(append_messages, other, conversation, f"b{number}", 8)
            for number, conversation in enumerate(conversations):
                check_from_many(await whole(log, conversation), [f"a{number}", f"b{number}"], 8)

    async def test_writers_in_several_processes_neither_lose_nor_double(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            command = [sys.executable, "-m", appending.__name__, place.kind, place.address, conversation]
            async with anyio.create_task_group() as tasks:
                for name in ("first", "second"):
                    tasks.start_soon(anyio.run_process, [*command, name, "40"])  # raises if it fails
                tasks.start_soon(append_messages, log, conversation, "here", 40)
            check_from_many(await whole(log, conversation), ["here", "first", "second"], 40)

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_read_after_each_other_are_the_whole_log(self, place: StorePlace, limit: int) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            await log.append(batch(conversation, *(MessageSent(message="m", text=str(n)) for n in range(9))))
            pages: list[Event] = []
            while page := await log.read(conversation, len(pages), limit):
                assert len(page) <= limit
                pages += page
            assert pages == await whole(log, conversation)
            assert [event.seq for event in pages] == list(range(1, 11))
            assert await log.read(conversation, 10, limit) == await log.read(conversation, 2**40, limit) == []
            assert await log.read(conversation, 0, 0) == []

    async def test_an_unknown_conversation_is_not_found(self, place: StorePlace) -> None:
        async with at(place) as (log, _):
            nobody = new_conversation_id()
            with pytest.raises(NotFoundError):
                await log.append(message(nobody, "hello"))
            with pytest.raises(NotFoundError):
                await log.read(nobody, 0, 10)
            with pytest.raises(NotFoundError):
                await log.head(nobody)
            with pytest.raises(NotFoundError):
                await log.open_attempts(nobody, 1)

    async def test_heads_of_many_are_told_at_once_without_the_unknown(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            known = [await new_conversation(catalog) for _ in range(3)]
            await log.append(message(known[1], "hello"))
            nobody = [new_conversation_id() for _ in range(3_000)]
            assert await log.heads([*known, *nobody]) == {known[0]: 1, known[1]: 2, known[2]: 1}
            assert await log.heads([]) == {}

    async def test_what_was_acknowledged_is_there_after_reopening(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, step = await new_conversation(catalog), new_step_id()
            await log.append(start(conversation, step, 1))
            before = await whole(log, conversation)
        async with at(place) as (log, _):
            assert await whole(log, conversation) == before
            assert [attempt.step for attempt in await log.open_attempts(conversation, 2)] == [step]
            assert (await log.append(seal(conversation, step, 1))).seqs == (3,)

    @pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
    async def test_any_text_comes_back_as_it_was(self, place: StorePlace, text: str) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog, title=text)
            append = message(conversation, text)
            await log.append(append)
            created, sent = await whole(log, conversation)
            assert (created.data["title"], sent.data["text"]) == (text, text)
            assert sent.data_json == append.events[0].data_json
            assert (await catalog.get(conversation)).title == text

    async def test_a_payload_in_the_object_store_comes_back_as_its_name(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            append = message(conversation, "big")
            append.events[0].blob, append.events[0].data_json = "b3_" + "0" * 64, ""
            await log.append(append)
            sent = (await whole(log, conversation))[1]
            assert (sent.blob, sent.data_json) == ("b3_" + "0" * 64, "")
            assert (await log.append(append)).is_repeat

    async def test_one_bad_append_does_not_hurt_those_beside_it(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, another = await new_conversation(catalog), await new_conversation(catalog)
            fine = [message(one, str(number)) for number in range(5) for one in (conversation, another)]
            bad = [
                message(new_conversation_id(), "to nobody"),
                batch(conversation, StepStarted(kind="model", name="x")),
                start(conversation, new_step_id(), 0),
                seal(conversation, new_step_id(), 1),
                Append(conversation, (), "empty", ACTOR),
                message(conversation, "a key with \x00", key="\x00"),
                message(conversation, "a lone surrogate", key="\ud800"),
                batch(conversation, MachineAttached(machine="mach_\x00")),
                batch(conversation, MessageSent(message="m", text="t"), actor="\x00"),
            ]
            answers = await attempt_all(log, [*bad[:4], *fine, *bad[4:]])
            assert [type(answer) for answer in answers if isinstance(answer, OutliveError)] == (
                [NotFoundError] + [InvalidError] * (len(bad) - 1)
            )
            assert sum(isinstance(answer, Appended) for answer in answers) == len(fine)
            assert await log.heads([conversation, another]) == {conversation: 6, another: 6}

    async def test_a_caller_that_went_away_finds_its_append_once(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog)
            appends = [message(conversation, str(number)) for number in range(20)]
            for number, append in enumerate(appends):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(log.append, append)
                    for _ in range(number % 7):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
            for append in appends:
                await log.append(append)
            events = await whole(log, conversation)
            assert sorted(int(event.data["text"]) for event in events[1:]) == list(range(20))
            assert [event.seq for event in events] == list(range(1, 22))

    async def test_a_database_that_is_away_is_unavailable_and_comes_back(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            conversation = await new_conversation(catalog)
        async with at(place, is_patient=False) as (log, catalog):
            append = message(conversation, "hello")
            async with place.away():
                with pytest.raises(UnavailableError):
                    await log.append(append)
                with pytest.raises(UnavailableError):
                    await new_conversation(catalog)
            assert (await log.append(append)).seqs == (2,)
