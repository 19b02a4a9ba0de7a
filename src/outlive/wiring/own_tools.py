"""From settings to what a worker of users' tools, and who calls it, exchange arguments and results through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client

from outlive.conversation.backends.object_blobs import ObjectBlobs
from outlive.conversation.blobs import Blobs
from outlive.loop.backends.object_live import ObjectLiveOutput
from outlive.loop.backends.temporal_own_tools import TemporalOwnTools
from outlive.loop.tools.own.calling import LiveOutput
from outlive.loop.tools.own.offers import ToolOffers
from outlive.loop.tools.own.shelf import KnownRuns, OwnTools
from outlive.wiring.build import open_object_store
from outlive.wiring.settings import Settings


def only_for_tools(settings: Settings) -> Settings:
    """What a process that runs users' code may know of the settings: where Temporal and the objects are."""
    return Settings.model_construct(
        home=settings.home, temporal=settings.temporal, objects=settings.objects, worker=settings.worker
    )


@asynccontextmanager
async def open_tool_exchange(settings: Settings) -> AsyncIterator[tuple[Blobs, LiveOutput]]:
    objects = await open_object_store(settings)
    yield ObjectBlobs(objects), ObjectLiveOutput(objects)


async def make_own_tools(settings: Settings, offers: ToolOffers, client: Client, runs: KnownRuns) -> OwnTools:
    """Users' tools as turns find and call them. `runs` learns how they run beside others."""
    wait_s = settings.loop.tool_wait_s
    live = ObjectLiveOutput(await open_object_store(settings))
    return OwnTools(offers, TemporalOwnTools(client, live, wait_s), wait_s, runs)
