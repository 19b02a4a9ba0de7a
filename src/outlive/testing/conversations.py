"""Makers of conversations, appends and whole stores, for tests of whatever keeps or shows them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import anyio

from outlive.base import ConversationId, OutliveError, StepId, TurnId, new_conversation_id, new_message_id
from outlive.conversation.backends.postgres_catalog import PostgresCatalog
from outlive.conversation.backends.postgres_log import MIGRATIONS as POSTGRES_MIGRATIONS
from outlive.conversation.backends.postgres_log import open_postgres_log
from outlive.conversation.backends.sqlite_catalog import SqliteCatalog
from outlive.conversation.backends.sqlite_log import MIGRATIONS as SQLITE_MIGRATIONS
from outlive.conversation.backends.sqlite_log import open_sqlite_log
from outlive.conversation.events import (
    ConversationCreated,
    Event,
    EventData,
    MessageSent,
    ModelResponded,
    NewEvent,
    Parent,
    StepStarted,
)
from outlive.conversation.log import Append, Appended, Catalog, EventLog, Writer
from outlive.storage import migrate_postgres, migrate_sqlite, open_postgres, open_sqlite

AT = "2030-01-02T03:04:05.000006Z"
ACTOR = "prin_of_a_test"


class StorePlace(Protocol):
    """Where a log and its catalog are kept. There is an empty database when a test gets it."""

    kind: Literal["sqlite", "postgres"]
    address: str

    def away(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing can be written, as in real life: a lock that is never let go, a server that is gone."""
        ...


class Store(NamedTuple):
    log: EventLog
    catalog: Catalog


@asynccontextmanager
async def open_store(kind: str, address: str, *, is_patient: bool = True) -> AsyncIterator[Store]:
    """A log and a catalog on the database at `address`. May be opened several times at once."""
    if kind == "sqlite":
        async with open_sqlite(Path(address), busy_timeout_s=20 if is_patient else 0.2) as sqlite:
            if is_patient:
                await migrate_sqlite(sqlite, [SQLITE_MIGRATIONS])
            async with open_sqlite_log(sqlite) as sqlite_log:
                yield Store(sqlite_log, SqliteCatalog(sqlite))
    else:
        async with open_postgres(address, pool_size=4) as postgres:
            await migrate_postgres(postgres, [POSTGRES_MIGRATIONS])
            async with open_postgres_log(postgres) as postgres_log:
                yield Store(postgres_log, PostgresCatalog(postgres))


def at(place: StorePlace, *, is_patient: bool = True) -> AbstractAsyncContextManager[Store]:
    return open_store(place.kind, place.address, is_patient=is_patient)


async def new_conversation(catalog: Catalog, title: str | None = None) -> ConversationId:
    conversation = new_conversation_id()
    await catalog.create(conversation, NewEvent(ConversationCreated(title=title), AT), ACTOR)
    return conversation


async def new_fork(catalog: Catalog, parent: ConversationId, at: int, title: str | None = None) -> ConversationId:
    conversation = new_conversation_id()
    created = ConversationCreated(title=title, parent=Parent(conversation=parent, at=at))
    await catalog.create(conversation, NewEvent(created, AT), ACTOR)
    return conversation


def batch(
    conversation: ConversationId,
    *data: EventData,
    key: str | None = None,
    turn: TurnId | None = None,
    actor: str = ACTOR,
) -> Append:
    events = tuple(NewEvent(each, AT) for each in data)
    return Append(conversation, events, key or new_message_id(), actor, turn)


def message(conversation: ConversationId, text: str, *, key: str | None = None, turn: TurnId | None = None) -> Append:
    return batch(conversation, MessageSent(message=new_message_id(), text=text), key=key, turn=turn)


def of_step(conversation: ConversationId, writer: Writer, *data: EventData, turn: TurnId | None = None) -> Append:
    events = tuple(NewEvent(each, AT) for each in data)
    return Append(conversation, events, writer.key, ACTOR, turn, writer)


def start(conversation: ConversationId, step: StepId, attempt: int, *, turn: TurnId | None = None) -> Append:
    return of_step(conversation, Writer(step, attempt, 0), StepStarted(kind="model", name="demo:"), turn=turn)


def seal(conversation: ConversationId, step: StepId, attempt: int, *, turn: TurnId | None = None) -> Append:
    return of_step(conversation, Writer(step, attempt, 1), ModelResponded(text="said", model="demo:"), turn=turn)


async def whole(log: EventLog, conversation: ConversationId) -> list[Event]:
    return await log.read(conversation, 0, 10_000)


async def attempt_all(log: EventLog, appends: list[Append]) -> list[Appended | OutliveError]:
    """Append all at once; each one's answer or error, in their order."""
    answers: dict[int, Appended | OutliveError] = {}

    async def one(number: int) -> None:
        try:
            answers[number] = await log.append(appends[number])
        except OutliveError as error:
            answers[number] = error

    async with anyio.create_task_group() as tasks:
        for number in range(len(appends)):
            tasks.start_soon(one, number)
    return [answers[number] for number in range(len(appends))]
