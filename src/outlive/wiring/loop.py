"""From settings to the loop: what a worker runs turns with."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import anyio
from temporalio.client import Client

from outlive.base import OutliveError
from outlive.loop.activities import (
    AnnounceActivities,
    CompactionActivities,
    ModelActivities,
    ModelBounds,
    OfferActivities,
    PlanActivities,
    RestActivities,
    ToolActivities,
)
from outlive.loop.activities.scribe import Scribe
from outlive.loop.announce_workflow import Announce
from outlive.loop.backends.temporal_announcer import TemporalAnnouncer
from outlive.loop.context import Bounds
from outlive.loop.decide import Limits
from outlive.loop.models.client import Patience
from outlive.loop.models.demo import DemoModel
from outlive.loop.models.registry import ModelRegistry
from outlive.loop.saver import Saver
from outlive.loop.subagents.family import Subagents
from outlive.loop.sweeper import TurnSweeper
from outlive.loop.tools import ToolParts
from outlive.loop.tools.own.shelf import KnownRuns
from outlive.loop.tools.shelf import Shelf
from outlive.loop.views import Views
from outlive.loop.webhook import Webhook, key_of
from outlive.loop.workflow import Turn
from outlive.wiring.build import Parts
from outlive.wiring.loop_client import make_loop_client
from outlive.wiring.own_tools import make_mcp_tools, make_own_tools
from outlive.wiring.providers import model_of_default
from outlive.wiring.settings import Settings

_log = logging.getLogger(__name__)


WORKFLOWS: tuple[type, ...] = (Turn, Announce)


class LoopParts(NamedTuple):
    """What a worker does for turns. `sweeper` and `saver` are run by whoever owns them. `warm_up` makes the client of
    the default model, so that the first turn does not wait for the import of its SDK."""

    activities: Sequence[Callable[..., Any]]
    warm_up: Callable[[], Awaitable[None]]
    sweeper: TurnSweeper
    saver: Saver


@asynccontextmanager
async def open_loop_parts(
    settings: Settings, parts: Parts, tools: ToolParts, client: Client
) -> AsyncIterator[LoopParts]:
    given = settings.loop
    runs = KnownRuns()
    views = Views(parts.conversations, runs, Limits(steps=given.steps, at_once=given.tools_at_once))
    bounds = ModelBounds(Bounds(given.context_tokens, given.result_bytes), given.answer_tokens)
    demo = partial(DemoModel, given.demo_pace_s)
    patience = Patience(first_byte_s=max(Patience().first_byte_s, given.stall_s), silence_s=given.stall_s)
    models = ModelRegistry({"demo": demo}, patience=patience)

    async def connected() -> Client:
        return client

    to_turns = make_loop_client(connected, parts.conversations.blobs)
    subagents = Subagents(parts.conversations, views, to_turns, given.result_bytes)
    tools = replace(tools, result_bytes=given.result_bytes, subagents=subagents)
    own = await make_own_tools(settings, parts.offers, client, runs)
    others = Shelf(tools, own, await make_mcp_tools(settings, parts.clock), runs)
    saver = Saver(tools)
    scribe = Scribe(parts.conversations, views, saver.note_end, subagents)

    async def warm_up() -> None:
        try:
            await models.find(model_of_default(settings))
        except OutliveError as error:
            _log.warning("the default model cannot be used: %s", error.message)

    try:
        yield LoopParts(
            activities=(
                *PlanActivities(scribe, parts.agents).all,
                *ModelActivities(scribe, parts.agents, models, bounds, others).all,
                *CompactionActivities(scribe, parts.agents, models, bounds).all,
                *ToolActivities(scribe, parts.agents, tools, others).all,
                *OfferActivities(parts.offers, parts.conversations.blobs, parts.clock).all,
                *_waiting(settings, parts, tools, scribe, client),
            ),
            warm_up=warm_up,
            sweeper=TurnSweeper(
                parts.catalog,
                to_turns,
                parts.clock,
                every_s=given.sweep_s,
                look_after=subagents.look_after,
            ),
            saver=saver,
        )
    finally:
        saver.close()
        with anyio.CancelScope(shield=True):
            await models.aclose()


def _waiting(
    settings: Settings, parts: Parts, tools: ToolParts, scribe: Scribe, client: Client
) -> Sequence[Callable[..., Any]]:
    """The activities of turns that wait."""
    webhook = _webhook(settings, parts)
    announce = TemporalAnnouncer(client).announce if webhook else None
    return (*RestActivities(scribe, tools, announce).all, *AnnounceActivities(parts.approvals, webhook).all)


def _webhook(settings: Settings, parts: Parts) -> Webhook | None:
    given = settings.approvals
    if given.webhook_url is None or given.webhook_secret is None:
        return None
    from outlive.loop.backends.http_webhook import HttpWebhook  # its client is a tenth of a worker's start

    return HttpWebhook(given.webhook_url, key_of(given.webhook_secret.get_secret_value()), parts.clock)
