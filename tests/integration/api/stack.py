"""The API on real parts (SQLite, local feed, local disk) behind a real uvicorn on a free loopback port."""

import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx
import uvicorn

from outlive.api import ApiParts, create_app
from outlive.base import ConversationId, StepId, SystemClock, new_operation_id, new_step_id
from outlive.conversation.approvals import Approvals
from outlive.conversation.backends.broker import open_broker
from outlive.conversation.backends.local_feed import open_local_feed
from outlive.conversation.backends.object_artifacts import ObjectArtifacts
from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.backends.sqlite_approvals import SqliteApprovals
from outlive.conversation.backends.sqlite_catalog import SqliteCatalog
from outlive.conversation.backends.sqlite_log import MIGRATIONS, open_sqlite_log
from outlive.conversation.conversations import Conversations
from outlive.conversation.writer import StepWriter, start_step
from outlive.governance import CachedPrincipals, open_idempotency
from outlive.governance.backends.sqlite import SqliteIdempotencyKeys, SqlitePrincipals, sqlite_migrations
from outlive.loop.agents import AgentRegistry
from outlive.loop.backends import sqlite_agents, sqlite_races
from outlive.loop.budgets.raising import Budgets
from outlive.processes.http_protocol import ProblemProtocol
from outlive.storage.migrate import migrate_sqlite
from outlive.storage.objects import open_objects
from outlive.storage.sqlite import open_sqlite

TOKEN = "secret-token-of-the-owner"
ACTOR = "prin_test"


async def _always_ready() -> Mapping[str, bool]:
    return {"database": True, "objects": True}


@asynccontextmanager
async def open_parts(home: Path) -> AsyncIterator[ApiParts]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_sqlite(home / "outlive.db"))
        await migrate_sqlite(
            database, (MIGRATIONS, sqlite_migrations(), sqlite_agents.MIGRATIONS, sqlite_races.MIGRATIONS)
        )
        log = await stack.enter_async_context(open_sqlite_log(database))
        await stack.enter_async_context(open_broker(home / "run" / "feed.sock"))
        feed = await stack.enter_async_context(open_local_feed(home / "run" / "feed.sock", log.heads))
        objects = open_objects(str(home / "objects"))
        principals = CachedPrincipals(SqlitePrincipals(database, clock), clock)
        await principals.ensure_owner(TOKEN)
        conversations = Conversations(log, SqliteCatalog(database), ObjectBlobs(objects), feed, clock)
        agents = AgentRegistry(sqlite_agents.SqliteAgents(database), "demo:", clock)
        yield ApiParts(
            conversations=conversations,
            budgets=Budgets(conversations, agents, clock),
            approvals=Approvals(conversations, SqliteApprovals(database), clock),
            artifacts=ObjectArtifacts(objects),
            principals=principals,
            idempotency=await stack.enter_async_context(open_idempotency(SqliteIdempotencyKeys(database, clock))),
            clock=clock,
            allowed_hosts=frozenset({"127.0.0.1", "localhost"}),
            is_loopback=True,
            readiness=_always_ready,
            closing=anyio.Event(),
            agents=agents,
            races=sqlite_races.SqliteRaces(database),
        )


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Api:
    """A running API, a client with the owner's token, and the parts behind it."""

    url: str
    http: httpx.AsyncClient
    parts: ApiParts
    app: Any
    server: uvicorn.Server

    @property
    def conversations(self) -> Conversations:
        return self.parts.conversations

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        assert url.port is not None
        return url.host, url.port

    async def create(self, **body: Any) -> ConversationId:
        answer = await self.http.post("/v1/conversations", json=body)
        assert answer.status_code == 201, answer.text
        return ConversationId(answer.json()["id"])

    async def send(self, conversation: str, text: str = "hello") -> dict[str, Any]:
        answer = await self.http.post(f"/v1/conversations/{conversation}/messages", json={"text": text})
        assert answer.status_code == 202, answer.text
        sent: dict[str, Any] = answer.json()
        return sent

    async def start_step(self, conversation: str, step: StepId | None = None, attempt: int = 1) -> StepWriter:
        open_turn = (await self.conversations.get(ConversationId(conversation))).turn
        return await start_step(
            self.conversations,
            ConversationId(conversation),
            turn=open_turn,
            step=step or new_step_id(),
            attempt=attempt,
            kind="model",
            name="demo:",
            actor=ACTOR,
        )


@asynccontextmanager
async def open_api(home: Path, **changes: Any) -> AsyncIterator[Api]:
    """`changes` replace fields of `ApiParts`."""
    async with open_parts(home) as parts, serve(replace(parts, **changes)) as api:
        yield api


@asynccontextmanager
async def serve(parts: ApiParts) -> AsyncIterator[Api]:
    app = create_app(parts)
    # With its protocol named: only then does asyncio switch off Nagle's algorithm, which costs 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    port = listener.getsockname()[1]
    server = _Server(
        uvicorn.Config(app, http=ProblemProtocol, ws="none", log_config=None, access_log=False, lifespan="off")
    )
    url = f"http://127.0.0.1:{port}"
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listener])
        try:
            async with httpx.AsyncClient(
                base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=20, trust_env=False, verify=False
            ) as http:
                yield Api(url, http, parts, app, server)
        finally:
            parts.closing.set()
            server.should_exit = True
    listener.close()


@dataclass(frozen=True)
class Shown:
    """One frame as it came over the wire."""

    id: str
    event: str
    data: dict[str, Any]


class Stream:
    """Frames of an open stream, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments: list[str] = []
        self._lines = response.aiter_lines()

    async def next(self) -> Shown | None:
        """The next frame; None when the stream has ended."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                self.comments.append(line)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return Shown(fields["id"], fields["event"], json.loads(fields["data"]))
            else:
                fields.clear()
        return None

    async def take(self, count: int) -> list[Shown]:
        with anyio.fail_after(20):
            shown = [await self.next() for _ in range(count)]
        assert None not in shown
        return [frame for frame in shown if frame is not None]


@asynccontextmanager
async def follow(api: Api, conversation: str, query: str = "", **headers: str) -> AsyncIterator[Stream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with api.http.stream("GET", f"/v1/conversations/{conversation}/stream{query}", headers=named) as response:
        if response.status_code != 200:
            await response.aread()
        yield Stream(response)


def fresh_key() -> dict[str, str]:
    return {"idempotency-key": new_operation_id()}
