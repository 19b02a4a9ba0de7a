"""Tools of a user's own: a package beside, on a worker of its own, called by turns."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pydantic import JsonValue

from eventually import eventually
from integration.loop.turns import PERSON, WITHIN_S, Stage, data_of, stage_at
from outlive.base import (
    ConversationId,
    EffectId,
    InvalidError,
    PrincipalId,
    new_effect_id,
    new_step_id,
    new_turn_id,
)
from outlive.conversation.events import Delta, Event, ToolCall
from outlive.conversation.position import START
from outlive.loop.agents import AgentDefinition
from outlive.loop.backends.temporal_own_tools import TemporalOwnTools
from outlive.loop.tools import ToolContext, ToolParts, ToolResult
from outlive.loop.tools.own.shelf import KnownRuns, OwnTools
from outlive.machine.terminal.status import Operator
from outlive.testing.pretend_provider import PretendProvider

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

OUTLIVE = Path(sys.executable).parent / "outlive"
ALL = ("add", "charge", "count", "dawdle", "dawdle_in_a_thread", "linger", "picture", "refuse", "repeat", "variables")
SECRETS = {"ANTHROPIC_API_KEY": "sk-x", "OUTLIVE_DATABASE__URL": "postgresql://secret@nowhere/x", "ACME_TOKEN": "mine"}


OPERATOR = Operator(id=PrincipalId(PERSON), name="acme", kind="agent", rights=frozenset())


class NoLive:
    """Nobody listens."""

    async def put(self, effect: EffectId, text: str) -> None: ...

    async def get(self, effect: EffectId) -> str:
        return ""

    async def forget(self, effect: EffectId) -> None: ...


class Site:
    """Where the user's package is, and what its tools did."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.folder = folder
        self.stage = stage
        self.module = folder / "acme_tools.py"
        self.logs = folder / "worker.log"
        folder.mkdir()
        shutil.copy(Path(__file__).parent / "acme_tools.py", self.module)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        settings = self.stage.settings
        environment = {
            **os.environ,
            **SECRETS,
            "OUTLIVE_HOME": str(settings.home),
            "OUTLIVE_TEMPORAL__ADDRESS": str(settings.temporal.address),
            "PYTHONPATH": str(self.folder),
            "ACME_FOLDER": str(self.folder),
        }
        with self.logs.open("ab") as log:
            return subprocess.Popen(
                [OUTLIVE, "worker", *(arguments or ("--tools", "acme_tools"))], env=environment, cwd="/", stderr=log
            )

    @contextmanager
    def working(self) -> "Iterator[subprocess.Popen[bytes]]":
        with self.start() as process:
            try:
                yield process
            finally:
                process.kill()

    def ledger(self) -> list[dict[str, Any]]:
        path = self.folder / "ledger"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def did(self, what: str) -> list[dict[str, Any]]:
        return [each for each in self.ledger() if each["what"] == what]

    async def offered(self) -> dict[str, int]:
        return {each.name: each.version for each in await self.stage.parts.offers.list()}

    async def is_offered(self) -> bool:
        return set(ALL) <= set(await self.offered())

    async def converse(self, agent: str = "acme", tools: tuple[str, ...] = ALL) -> ConversationId:
        definition = AgentDefinition(name=agent, model=None, instructions="Use your tools.", tools=tools)
        await self.stage.parts.agents.apply(definition, by=PERSON)
        return await self.stage.converse(agent=agent)

    async def ask(self, text: str) -> list[Event]:
        conversation = await self.converse()
        return await self.stage.ended(conversation, await self.stage.send(conversation, text))

    async def result(self, name: str, **arguments: Any) -> dict[str, Any]:
        [finished] = data_of(await self.ask(f"[[tool {name} {json.dumps(arguments)}]] [[say Done.]]"), "tool.finished")
        return finished


@pytest.fixture
async def site(stage: Stage, tmp_path: Path) -> Site:
    return Site(tmp_path / "site", stage)


@asynccontextmanager
async def site_that_waits(home: Path, temporal: str, wait_s: float) -> AsyncIterator[Site]:
    async with stage_at(home / "home", temporal, tool_wait_s=wait_s) as stage:
        yield Site(home / "site", stage)


async def test_a_turn_uses_a_users_tools_and_is_told_how_each_ended(site: Site, provider: PretendProvider) -> None:
    with site.working():
        await eventually(site.is_offered, WITHIN_S)
        events = await site.ask('[[tool add {"a": 40}]] [[also tool add {"a": 1, "b": 1}]] [[quote 100]]')
        assert {each["output"] for each in data_of(events, "tool.finished")} == {'{"sum":42}', '{"sum":2}'}
        assert '{"sum":42}' in data_of(events, "model.responded")[-1]["text"]
        [add] = [each for each in _tools_told(provider, 1) if each["name"] == "add"]
        assert add["description"] == "The sum of two numbers."
        assert add["input_schema"]["required"] == ["a"]

        wrong = await site.result("add", a="many")
        assert (wrong["outcome"], "- a: Input should be a valid integer" in wrong["output"]) == ("rejected", True)
        own = await site.result("refuse", message="No such city.")
        assert (own["outcome"], own["output"]) == ("failed", "No such city.")
        raised = await site.result("refuse", message="Oh.", how="other")
        assert raised["outcome"] == "failed"
        assert raised["output"].startswith("ValueError: Oh.\n  at ")
        assert str(site.folder) not in raised["output"]
        left = await site.result("refuse", message="Bye.", how="exit")
        assert (left["outcome"], left["output"].startswith("SystemExit: Bye.")) == ("failed", True)
        late = await site.result("dawdle")
        assert (late["outcome"], "timeout of 0.5 s and was stopped" in late["output"]) == ("failed", True)
        stuck = await site.result("dawdle_in_a_thread")
        assert (stuck["outcome"], "may still go on" in stuck["output"]) == ("lost", True)
        (site.folder / "gate").touch()

        long = await site.result("repeat", text="0123456789\n", times=50_000)
        assert len(long["output"]) < 40_000
        assert len(await site.stage.parts.conversations.blobs.get(long["blob"])) == 550_000
        raw = await site.result("picture")
        assert "7 bytes that are no text" in raw["output"]
        assert await site.stage.parts.conversations.blobs.get(raw["blob"]) == b"\x89PNG\r\n\x00"

        names = json.loads((await site.result("variables"))["output"])
        assert {"ACME_TOKEN", "OUTLIVE_HOME"} <= set(names)
        assert not [name for name in names if name.startswith(("ANTHROPIC_", "OUTLIVE_TEMPORAL", "OUTLIVE_DATABASE"))]

        with pytest.raises(InvalidError, match="outlive worker --tools"):
            await site.converse("other", ("add", "nowhere"))


async def test_a_workers_death_is_told_as_lost_and_only_what_is_idempotent_runs_again(site: Site) -> None:
    with site.working() as worker:
        await eventually(site.is_offered, WITHIN_S)
        conversation = await site.converse()
        turn = await site.stage.send(conversation, '[[tool charge {"amount": 7}]] [[also tool count {}]] [[say Done.]]')
        await eventually(lambda: len(site.ledger()) == 2, WITHIN_S)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    (site.folder / "gate").touch()
    with site.working():
        events = await site.stage.ended(conversation, turn, 120)
    requested = {each["name"]: each["effect"] for each in data_of(events, "tool.requested")}
    finished = {each["effect"]: each for each in data_of(events, "tool.finished")}
    charged, counted = finished[requested["charge"]], finished[requested["count"]]
    assert (charged["outcome"], "not run again" in charged["output"]) == ("lost", True)
    assert (counted["outcome"], counted["output"]) == ("finished", "counted at attempt 2")
    assert site.did("charge") == [{"what": "charge", "effect": requested["charge"], "attempt": 1}]
    assert site.did("count") == [{"what": "count", "effect": requested["count"], "attempt": n} for n in (1, 2)]


async def test_a_step_that_is_tried_again_finds_the_run_that_was_begun(site: Site) -> None:
    """As a worker of ours does that took over from one that died: before the tool ended, after it, and before it was
    begun."""
    parts = ToolParts(site.stage.parts.conversations, site.stage.parts.artifacts)
    temporal = TemporalOwnTools(site.stage.client, NoLive(), 30.0)
    caller = OwnTools(site.stage.parts.offers, temporal, 30.0, KnownRuns())
    conversation = await site.stage.converse()

    async def run(name: str, effect: EffectId, arguments: dict[str, JsonValue], *, is_again: bool) -> ToolResult:
        tool = (await caller.find([name]))[name]
        context = ToolContext(
            parts, conversation, new_turn_id(), new_step_id(), effect, OPERATOR, lambda *_: None, is_again=is_again
        )
        return await tool.run(ToolCall(id="c", name=name, arguments=arguments), context)

    with site.working():
        await eventually(site.is_offered, WITHIN_S)
        effect, never = new_effect_id(), new_effect_id()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run("charge", effect, {"amount": 7}, is_again=False))
            await eventually(lambda: len(site.did("charge")) == 1, WITHIN_S)
            group.cancel_scope.cancel()  # it dies; the tool does not know
        async with anyio.create_task_group() as group:
            results: list[ToolResult] = []

            async def again() -> None:
                results.append(await run("charge", effect, {"amount": 7}, is_again=True))

            group.start_soon(again)
            (site.folder / "gate").touch()
        results.append(await run("charge", effect, {"amount": 7}, is_again=True))
        assert [(each.outcome, each.output) for each in results] == [("finished", "charged 7")] * 2
        lost = await run("charge", never, {"amount": 8}, is_again=True)
        assert (lost.outcome, "not run again" in lost.output) == ("lost", True)
        counted = await run("count", never, {}, is_again=True)
        assert (counted.outcome, counted.output) == ("finished", "counted at attempt 1")
        assert await temporal.stop(early := new_effect_id()) is None  # while its start is under way
        assert (await run("charge", early, {"amount": 9}, is_again=False)).outcome == "rejected"
    assert [each["effect"] for each in site.did("charge")] == [effect]


async def test_an_interrupt_stops_a_users_tool(site: Site) -> None:
    with site.working():
        await eventually(site.is_offered, WITHIN_S)
        conversation = await site.converse()
        turn = await site.stage.send(conversation, "[[tool linger {}]] [[say Never.]]")
        await eventually(lambda: bool(site.did("linger")), WITHIN_S)
        await site.stage.loop.interrupt(conversation, turn, by=PERSON, reason="enough")
        events = await site.stage.ended(conversation, turn)
        [finished] = data_of(events, "tool.finished")
        assert (finished["outcome"], "interrupted" in finished["output"]) == ("lost", True)
        await eventually(lambda: bool(site.did("stopped")), WITHIN_S)
        assert len(site.did("linger")) == 1


async def test_what_a_tool_says_is_shown_while_it_runs_and_nothing_of_it_is_in_temporal(site: Site) -> None:
    with site.working():
        await eventually(site.is_offered, WITHIN_S)
        conversation = await site.converse()
        turn = await site.stage.send(conversation, "[[tool count {}]] [[say Done.]]")
        said: list[str] = []
        async with site.stage.parts.conversations.follow(conversation, START) as following:
            while not said:
                bodies = [frame.body for frame in await following.next_frames()]
                said += [body.text for body in bodies if isinstance(body, Delta) and body.call is not None]
        (site.folder / "gate").touch()
        await site.stage.ended(conversation, turn)
        assert said == ["counting\n"]
        [requested] = data_of(await site.stage.events(conversation), "tool.requested")
        handle = site.stage.client.get_activity_handle(EffectId(requested["effect"]))
        known = await handle.describe(include_input=True, include_outcome=True, include_heartbeat_details=True)
        assert "count" in str(known.raw_input)
        assert "counting" not in str(known)
        assert "counted" not in str(known)


async def test_a_tool_whose_worker_is_away_is_waited_for_and_then_told(
    temporal: str, provider: PretendProvider, tmp_path: Path
) -> None:
    async with site_that_waits(tmp_path, temporal, 3.0) as site:
        with site.working():
            await eventually(site.is_offered, WITHIN_S)
            await site.converse()
        told = await site.result("add", a=1)
        assert (told["outcome"], "so nothing was done" in told["output"]) == ("rejected", True)
        assert "outlive-tools/acme_tools" in told["output"]


async def test_a_changed_tool_is_seen_at_the_next_model_step_of_a_turn_that_runs(
    site: Site, provider: PretendProvider
) -> None:
    with site.working() as worker:
        await eventually(site.is_offered, WITHIN_S)
        conversation = await site.converse()
        turn = await site.stage.send(conversation, '[[tool count {}]] [[tool add {"a": 1, "c": 5}]] [[say Done.]]')
        await eventually(lambda: bool(site.did("count")), WITHIN_S)
        site.module.write_text(site.module.read_text().replace("a: int, b: int = 2", "a: int, c: int, b: int = 2"))
        worker.send_signal(signal.SIGTERM)
        assert await _exit_code(worker) == 0
    with site.working():
        await eventually(lambda: _has_version(site, "add", 2), WITHIN_S)
        (site.folder / "gate").touch()
        events = await site.stage.ended(conversation, turn)
    assert [each["output"] for each in data_of(events, "tool.finished")] == ["counted at attempt 2", '{"sum":3}']
    schemas = [
        each["input_schema"]["required"] for n in (1, 2) for each in _tools_told(provider, n) if each["name"] == "add"
    ]
    assert schemas == [["a"], ["a", "c"]]


async def _exit_code(process: "subprocess.Popen[bytes]") -> int:
    """The stage is in this process: it has to go on meanwhile."""
    return await anyio.to_thread.run_sync(process.wait, WITHIN_S)


def _tools_told(provider: PretendProvider, number: int) -> list[dict[str, Any]]:
    """The tools in the n-th request to the provider."""
    body = provider.ledger.request(number)
    assert body is not None
    tools: list[dict[str, Any]] = json.loads(body)["tools"]
    return tools


async def _has_version(site: Site, name: str, version: int) -> bool:
    return (await site.offered()).get(name) == version


async def test_tools_that_cannot_be_loaded_end_the_worker_with_the_reason(site: Site) -> None:
    site.module.write_text("from outlive import tool\n@tool\ndef odd(a):\n    'Odd.'\n")
    assert await _exit_code(site.start()) == 2
    assert "'a' without an annotation" in site.logs.read_text()
    taken = "from outlive import tool\n@tool\ndef shell(a: int) -> None:\n    'Mine.'\n"
    site.module.write_text(taken)
    assert await _exit_code(site.start()) == 1
    assert "name of a built-in tool" in site.logs.read_text()
