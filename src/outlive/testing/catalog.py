"""What every catalog promises, whatever keeps it: subclass `CatalogContract` and give it a `place` fixture."""

from contextlib import suppress

import anyio
import pytest

from outlive.base import (
    ConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    new_conversation_id,
    new_step_id,
    new_turn_id,
)
from outlive.conversation.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationArchived,
    ConversationCreated,
    EventData,
    MachineAttached,
    MessageSent,
    ModelChanged,
    ModelResponded,
    NewEvent,
    TurnFinished,
    TurnParked,
    TurnStarted,
)
from outlive.conversation.log import SEARCHED_CHARACTERS, Catalog, Conversation, OpenTurn, Writer
from outlive.testing.conversations import (
    ACTOR,
    AT,
    StorePlace,
    at,
    batch,
    message,
    new_conversation,
    new_fork,
    of_step,
    seal,
    start,
    whole,
)

# Nothing that a query language could take for its own may be an error, or mean anything.
HOSTILE_QUERIES = [
    *('"', "'", '"needle', "needle*", "(needle", "NEAR(needle)", "needle:", "-needle", "^needle", "{needle}", "a:b"),
    *(
        "needle OR",
        "AND",
        "NOT needle",
        "needle & ",
        "needle | x",
        "!needle",
        "needle:*",
        "needle <-> x",
        "\\",
        "%",
        "_",
    ),
    *("\x00", "needle\x00", "🧑‍🚀", "'; DROP TABLE texts; --", "words:needle", "x" * 10_000, "a " * 5_000),
]


async def found(catalog: Catalog, query: str, *, archived: bool = False) -> list[str | None]:
    return [each.title for each in await catalog.list(limit=100, query=query, archived=archived)]


class CatalogContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_a_new_conversation_is_shown_as_it_was_made(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            made = ConversationCreated(
                agent="coder",
                title="A\x00title 🧑‍🚀",
                environment="env",
                model="demo:",
                metadata={"deep": [{"\x00": None}]},
            )
            conversation = new_conversation_id()
            shown, event = await catalog.create(conversation, NewEvent(made, AT), ACTOR)
            assert shown == Conversation(
                id=conversation,
                agent="coder",
                title="A\x00title 🧑‍🚀",
                environment="env",
                model="demo:",
                metadata={"deep": [{"\x00": None}]},
                parent=None,
                state="idle",
                turn=None,
                machine=None,
                head=1,
                created_by=ACTOR,
                created_at=AT,
                updated_at=AT,
                archived_at=None,
            )
            assert await catalog.get(conversation) == shown
            assert await whole(log, conversation) == [event]
            assert (event.seq, event.type, event.actor) == (1, "conversation.created", ACTOR)

    async def test_making_the_same_again_changes_nothing(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, created = new_conversation_id(), NewEvent(ConversationCreated(title="one"), AT)
            first = await catalog.create(conversation, created, ACTOR)
            assert await catalog.create(conversation, NewEvent(created.data, AT), ACTOR) == first
            with pytest.raises(ConflictError) as refused:
                await catalog.create(conversation, NewEvent(ConversationCreated(title="other"), AT), ACTOR)
            assert refused.value.code == "conversation.exists"
            assert await log.head(conversation) == 1

    async def test_made_many_times_at_once_there_is_one(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (_, other):
            conversation, data = new_conversation_id(), ConversationCreated(title="one")
            events = set()

            async def create(through: Catalog) -> None:
                events.add((await through.create(conversation, NewEvent(data, AT), ACTOR))[1])

            async with anyio.create_task_group() as tasks:
                for number in range(10):
                    tasks.start_soon(create, (catalog, other)[number % 2])
            assert events == set(await whole(log, conversation))
            assert len(events) == 1
            assert len(await catalog.list(limit=10)) == 1

    async def test_a_conversation_begins_with_nothing_else(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            with pytest.raises(InvalidError):
                await catalog.create(new_conversation_id(), NewEvent(MessageSent(message="m", text="t"), AT), ACTOR)

    async def test_an_unknown_conversation_is_not_found(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            with pytest.raises(NotFoundError):
                await catalog.get(new_conversation_id())
            with pytest.raises(NotFoundError):
                await new_fork(catalog, new_conversation_id(), 1)

    async def test_pages_of_a_list_are_all_of_it_newest_first(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            made = [await new_conversation(catalog, f"number {n}") for n in range(7)]
            for query in (None, "", "  ", "number"):
                pages: list[Conversation] = []
                while page := await catalog.list(limit=3, before=pages[-1].id if pages else None, query=query):
                    pages += page
                assert [each.id for each in pages] == made[::-1]
            assert await catalog.list(limit=0) == []

    async def test_an_archived_conversation_is_hidden_readable_and_takes_no_message(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            kept, gone = await new_conversation(catalog, "kept"), await new_conversation(catalog, "gone")
            await log.append(message(gone, "hello"))
            await log.append(batch(gone, ConversationArchived()))
            assert [each.id for each in await catalog.list(limit=10)] == [kept]
            assert [each.id for each in await catalog.list(limit=10, archived=True)] == [gone]
            assert await found(catalog, "hello") == []
            assert await found(catalog, "hello", archived=True) == ["gone"]
            assert (await catalog.get(gone)).archived_at == AT
            assert len(await whole(log, gone)) == 3
            with pytest.raises(ConflictError) as refused:
                await log.append(message(gone, "too late"))
            assert refused.value.code == "conversation.archived"

    async def test_a_model_that_is_wanted_for_the_conversation_is_shown(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            created = ConversationCreated(title="A\x00title 🧑‍🚀", model="demo:", metadata={"deep": [{"\x00": None}]})
            id = new_conversation_id()
            made, _ = await catalog.create(id, NewEvent(created, AT), ACTOR)
            await log.append(batch(id, ModelChanged(model="demo:turn", scope="turn")))
            assert (await catalog.get(id)).model == "demo:"
            changed = [ModelChanged(model=f"demo:'{n}\"é", scope="conversation") for n in range(2)]
            await log.append(batch(id, *changed))
            assert await catalog.get(id) == made._replace(model="demo:'1\"é", head=4)
            await log.append(batch(id, ConversationArchived(), ModelChanged(model="demo:", scope="conversation")))
            shown = await catalog.get(id)
            assert (shown.model, shown.archived_at, shown.title) == ("demo:", AT, created.title)

    async def test_the_summary_follows_the_events(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation, turn, later = await new_conversation(catalog), new_turn_id(), new_turn_id()
            story: list[tuple[EventData, str, str | None, str | None]] = [
                (MessageSent(message="m", text="t"), "running", turn, None),
                (TurnStarted(agent="a", version=1, model="demo:"), "running", turn, None),
                (MachineAttached(machine="mach_1"), "running", turn, "mach_1"),
                (ApprovalRequested(approval="a", question="q", expires_at=AT), "waiting", turn, "mach_1"),
                (ApprovalDecided(approval="a", decision="approve"), "running", turn, "mach_1"),
                (TurnFinished(outcome="failed"), "failed", None, "mach_1"),
            ]
            for number, (data, state, in_turn, machine) in enumerate(story, start=2):
                await log.append(batch(conversation, data, turn=turn))
                shown = await catalog.get(conversation)
                assert (shown.head, shown.state, shown.turn, shown.machine) == (number, state, in_turn, machine)
            await log.append(message(conversation, "again", turn=later))
            assert (await catalog.list(limit=1))[0].turn == later

    async def test_turns_that_are_open_are_found_page_by_page(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            made = sorted([await new_conversation(catalog) for _ in range(5)])
            assert await catalog.open_turns(limit=10) == []
            turns = {conversation: new_turn_id() for conversation in made[:4]}
            for conversation, turn in turns.items():
                await log.append(message(conversation, "hello", turn=turn))
            await log.append(batch(made[1], TurnFinished(outcome="done"), turn=turns[made[1]]))
            first = await catalog.open_turns(limit=2)
            assert [(each.conversation, each.turn) for each in first] == [(id, turns[id]) for id in (made[0], made[2])]
            rest = await catalog.open_turns(limit=2, after=first[-1].conversation)
            assert rest == [OpenTurn(made[3], turns[made[3]], AT, "running", True)]

    async def test_of_an_open_turn_it_is_known_whether_it_waits_and_whether_a_step_is_open(
        self, place: StorePlace
    ) -> None:
        async with at(place) as (log, catalog):
            conversation, turn = await new_conversation(catalog), new_turn_id()
            await log.append(message(conversation, "hello", turn=turn))

            async def known() -> tuple[str, bool]:
                [each] = await catalog.open_turns(limit=2)
                return each.state, each.is_idle

            assert await known() == ("running", True)
            await log.append(batch(conversation, TurnParked(), turn=turn))
            assert await known() == ("waiting", True)
            step = new_step_id()
            await log.append(start(conversation, step, 1, turn=turn))
            assert await known() == ("running", False)
            await log.append(seal(conversation, step, 1, turn=turn))
            assert await known() == ("running", True)

    async def test_a_fork_at_any_event_shares_the_past_and_goes_its_own_way(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            parent = await new_conversation(catalog, "parent")
            await log.append(batch(parent, *(MessageSent(message="m", text=str(n)) for n in range(4))))
            past = await whole(log, parent)
            for point in range(1, len(past) + 1):
                fork = await new_fork(catalog, parent, point, "fork")
                shown = await catalog.get(fork)
                assert (shown.parent, shown.head, shown.title) == ((parent, point), point + 1, "fork")
                assert (await log.append(message(fork, "its own"))).seqs == (point + 2,)
                events = await whole(log, fork)
                assert events[:point] == past[:point]
                assert [event.type for event in events[point:]] == ["conversation.created", "message.sent"]
                assert [event.seq for event in events] == list(range(1, point + 3))
                pages = [event for after in range(point + 2) for event in await log.read(fork, after, 1)]
                assert pages == events
            assert await whole(log, parent) == past

    async def test_a_fork_of_a_fork_shares_all_of_its_past(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            first = await new_conversation(catalog)
            await log.append(batch(first, *(MessageSent(message="m", text=f"1.{n}") for n in range(3))))
            second = await new_fork(catalog, first, 3)
            await log.append(message(second, "2.0"))
            await log.append(message(first, "not in the fork"))
            past = await whole(log, second)
            for point in range(1, 6):  # in the first's part and in the second's own
                third = await new_fork(catalog, second, point)
                await log.append(message(third, "3.0"))
                events = await whole(log, third)
                assert events[:point] == past[:point]
                assert [event.seq for event in events] == list(range(1, point + 3))
                assert (await catalog.get(third)).parent == (second, point)
                for after in range(point + 2):
                    assert await log.read(third, after, 2) == events[after : after + 2]

    async def test_a_fork_leaves_at_an_event_that_is_there(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            parent = await new_conversation(catalog)
            for point, code in ((0, "fork.at"), (2, "fork.beyond_head")):
                with pytest.raises(InvalidError) as refused:
                    await new_fork(catalog, parent, point)
                assert refused.value.code == code
            assert len(await catalog.list(limit=10)) == 1
            assert await log.head(parent) == 1

    async def test_an_archived_conversation_can_be_forked(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            parent, turn = await new_conversation(catalog), new_turn_id()
            await log.append(batch(parent, TurnStarted(agent="a", version=1, model="m"), turn=turn))
            await log.append(batch(parent, MachineAttached(machine="mach_1"), ConversationArchived(), turn=turn))
            fork = await new_fork(catalog, parent, 4)
            shown = await catalog.get(fork)
            assert (shown.archived_at, shown.state, shown.turn, shown.machine) == (None, "idle", None, None)
            assert (await log.append(message(fork, "on"))).seqs == (6,)

    async def test_a_step_of_the_parent_is_not_open_in_a_fork(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            parent, step = await new_conversation(catalog), new_step_id()
            await log.append(start(parent, step, 1))
            await log.append(message(parent, "meanwhile"))
            fork = await new_fork(catalog, parent, 3)
            await log.append(seal(parent, step, 1))
            assert [each.start for each in await log.open_attempts(fork, 2)] == [2]
            assert [each.start for each in await log.open_attempts(fork, 3)] == [2]
            assert await log.open_attempts(fork, 4) == []
            with pytest.raises(InvalidError) as refused:
                await log.append(seal(fork, step, 1))
            assert refused.value.code == "step.not_started"
            await log.append(start(fork, step, 1))
            assert [each.start for each in await log.open_attempts(fork, 5)] == [5]
            assert await log.open_attempts(parent, 5) == []

    async def test_forks_of_forks_are_bounded(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            newest = await new_conversation(catalog)
            for depth in range(256):
                newest = await new_fork(catalog, newest, depth + 1)
            with pytest.raises(ConflictError) as refused:
                await new_fork(catalog, newest, 257)
            assert refused.value.code == "fork.too_deep"
            await new_fork(catalog, newest, 256)

    async def test_a_search_finds_titles_messages_and_answers(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            titled = await new_conversation(catalog, "Mend the Élan-Vital build")
            asked = await new_conversation(catalog, "asked")
            await log.append(message(asked, "Why does test_append_with_stale_fence fail? ÄRGER über 漢字処理"))
            step = new_step_id()
            await log.append(start(titled, step, 1))
            answer = ModelResponded(text="Because\x00the clock went back 🧑‍🚀.", model="demo:")
            await log.append(of_step(titled, Writer(step, 1, 1), answer))
            mend = ["Mend the Élan-Vital build"]
            assert await found(catalog, "elan") == await found(catalog, "BUILD mend") == mend
            assert await found(catalog, "clock") == await found(catalog, "because 🧑‍🚀 the") == mend
            assert (
                await found(catalog, "stale")
                == await found(catalog, "fail ärg")
                == await found(catalog, "漢字")
                == ["asked"]
            )
            assert await found(catalog, "the") == mend
            assert await found(catalog, "mend clock") == [], "not in one event"
            assert await found(catalog, "me the") == [], "only the last word may be a beginning"
            assert await found(catalog, "nowhere") == []

    async def test_a_search_finds_what_was_appended_just_before(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog), at(place) as (_, other):
            conversation = await new_conversation(catalog, "here")
            for number in range(5):
                await log.append(message(conversation, f"word{number}"))
                assert await found(other, f"word{number}") == ["here"]
            for text in ("many{}", "mány{}"):
                await log.append(
                    batch(conversation, *(MessageSent(message="m", text=text.format(n)) for n in range(300)))
                )
            await log.append(message(conversation, 'after\x00all \\u0041 "quoted" \n line'))
            for query in ("many0", "many299", "all", "u0041", "quoted", "line after"):
                assert await found(other, query) == ["here"], query
            moved = message(conversation, "elsewhere")
            moved.events[0].blob, moved.events[0].data_json = "b3_" + "0" * 64, ""
            await log.append(moved)
            assert await found(other, "elsewhere") == ["here"]

    async def test_a_search_looks_at_the_beginning_of_long_texts(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            conversation = await new_conversation(catalog, "long")
            filler = "filler " * SEARCHED_CHARACTERS
            await log.append(message(conversation, f"early {filler}"[: SEARCHED_CHARACTERS + 1] + " late"))
            assert await found(catalog, "early") == ["long"]
            assert await found(catalog, "late") == []
            await log.append(message(conversation, "w" * 3_000))
            assert await found(catalog, "w" * 3_000) == ["long"]
            await log.append(message(conversation, f"{'v' * 3_000} {'é' * 100} short"))
            assert await found(catalog, f"{'v' * 3_000} {'e' * 70} short") == ["long"]

    async def test_no_query_is_an_error_or_a_command(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            await new_conversation(catalog, "other")
            conversation = await new_conversation(catalog, "needle")
            for query in HOSTILE_QUERIES:
                titles = await found(catalog, query)
                assert titles in ([], ["needle"]), query
                if query.strip("\"'*()^{}-: !\x00&|\\").lower() == "needle":
                    assert titles == ["needle"], query
            assert await log.head(conversation) == 1

    async def test_a_fork_is_found_by_its_past_but_not_by_its_parents_title(self, place: StorePlace) -> None:
        async with at(place) as (log, catalog):
            parent = await new_conversation(catalog, "origin")
            await log.append(message(parent, "shared words"))
            fork = await new_fork(catalog, parent, 2, "branch")
            await log.append(message(parent, "later words"))
            await log.append(message(fork, "own words"))
            await new_fork(catalog, fork, 4, "twig")
            assert await found(catalog, "shared") == ["twig", "branch", "origin"]
            assert await found(catalog, "own") == ["twig", "branch"]
            assert await found(catalog, "later") == await found(catalog, "origin") == ["origin"]
            assert await found(catalog, "branch") == ["branch"]

    async def test_a_catalog_that_is_away_says_so(self, place: StorePlace) -> None:
        async with at(place) as (_, catalog):
            await new_conversation(catalog, "before")
        async with at(place, is_patient=False) as (_, catalog):
            async with place.away():
                with pytest.raises(UnavailableError):
                    await new_conversation(catalog)
                with suppress(UnavailableError):  # what can be read without writing may still be read
                    assert len(await catalog.list(limit=10)) == 1
            assert len(await catalog.list(limit=10)) == 1
