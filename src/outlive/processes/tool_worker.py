"""The worker of a user's own tools: from the names of modules to an activity worker on a queue of its own.

Rule 1: it runs others' code, so it has only what it needs: Temporal, and the object store for arguments and results.
        It knows no database, no feed and no key of a provider; what the environment has of them is dropped before the
        first line of a tool is imported.
Rule 2: it is ready when a worker of ours has taken its offer. Killed anywhere, another goes on: what it ran is tried
        again if it was declared idempotent, and else told as lost.
"""

import hashlib
import logging
import os
import sys
from collections.abc import MutableMapping, Sequence
from datetime import timedelta

import anyio
from temporalio.client import ActivityFailureError, Client
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from outlive.base import ConflictError, OutliveError, UnavailableError, new_operation_id
from outlive.conversation.blobs import Blobs
from outlive.loop.activities.own_tools import OwnToolActivities
from outlive.loop.queues import LOOP, TOOLS_PREFIX
from outlive.loop.tools.own.offers import RENEW_S
from outlive.loop.tools.own.running import open_runner
from outlive.loop.tools.own.wire import OFFER_TOOLS, Offer, OfferAnswer, OfferedTool, OfferTask
from outlive.processes.ending import open_ending
from outlive.processes.logs import log_to_stderr
from outlive.processes.ready import tell_ready
from outlive.toolkit import DeclaredTool, load_tools
from outlive.wiring.own_tools import only_for_tools, open_tool_exchange
from outlive.wiring.providers import without_providers
from outlive.wiring.settings import Settings, prepare_home
from outlive.wiring.temporal import connect_temporal
from outlive.wiring.temporal_worker import make_worker, run_until_shut, shut

_BEAT_S = 0.5  # how late a tool hears that somebody stops it, at most
_OFFER_WITHIN_S = 30.0
_OFFER_RETRY_S = 1.0
# For a tool that uses the client library; the rest is ours.
_CLIENTS_VARIABLES = frozenset({"OUTLIVE_HOME", "OUTLIVE_URL", "OUTLIVE_TOKEN"})

_log = logging.getLogger(__name__)


def main(
    settings: Settings,
    names: Sequence[str],
    queue: str | None = None,
    lifeline_fd: int | None = None,
    ready_fd: int | None = None,
) -> None:
    """Run the tools under `names` (`module`, `module:name`) until SIGTERM, SIGINT or the end of the lifeline."""
    os.umask(0o077)
    log_to_stderr()
    settings = only_for_tools(settings)
    prepare_home(settings)
    forget_secrets(os.environ)
    sys.path.insert(0, os.getcwd())  # as `python -m` has it; a command has its own folder there
    tools = load_tools(names)
    offer = make_offer(tools, named_queue(queue) if queue else queue_of(names))
    anyio.run(_run, settings, tools, offer, lifeline_fd, ready_fd, backend_options={"use_uvloop": True})


def queue_of(names: Sequence[str]) -> str:
    """The queue of a worker that is given no other: the same tools, the same queue."""
    text = "+".join(sorted(set(names)))
    if len(text) > 100:
        text = hashlib.sha256(text.encode()).hexdigest()[:32]
    return named_queue(text)


def named_queue(name: str) -> str:
    """A queue of tools, never one of ours: whoever works on a queue is given what is in it."""
    return name if name.startswith(TOOLS_PREFIX) else f"{TOOLS_PREFIX}{name}"


def make_offer(tools: Sequence[DeclaredTool], queue: str) -> Offer:
    return Offer(
        queue=queue,
        tools=tuple(
            OfferedTool(
                name=each.name,
                description=each.description,
                parameters=each.parameters,
                runs=each.runs,
                is_idempotent=each.is_idempotent,
                timeout_s=each.timeout_s,
            )
            for each in tools
        ),
    )


def forget_secrets(environment: MutableMapping[str, str]) -> None:
    """Drop settings of ours and keys of providers. What a tool needs of its own has names of its own."""
    kept = without_providers(environment)
    for name in [*environment]:
        is_ours = name.upper().startswith("OUTLIVE_") and name not in _CLIENTS_VARIABLES
        if is_ours or name not in kept:
            del environment[name]


async def _run(
    settings: Settings, tools: Sequence[DeclaredTool], offer: Offer, lifeline_fd: int | None, ready_fd: int | None
) -> None:
    async with open_ending(lifeline_fd) as ending, anyio.create_task_group() as work:
        work.start_soon(_open_and_work, settings, tools, offer, ready_fd)
        await ending.wait()
        work.cancel_scope.cancel()
    _log.info("stopped")


async def _open_and_work(settings: Settings, tools: Sequence[DeclaredTool], offer: Offer, ready_fd: int | None) -> None:
    client = await connect_temporal(settings)
    async with open_tool_exchange(settings) as (blobs, live), open_runner(settings.worker.activities) as runner:
        activities = OwnToolActivities({each.name: each for each in tools}, runner, blobs, live)
        worker = make_worker(client, offer.queue, settings, activities=activities.all, beat_s=_BEAT_S)
        async with anyio.create_task_group() as group:
            group.start_soon(run_until_shut, worker)
            try:
                await put_offer(client, blobs, offer)
                names = [each.name for each in tools]
                _log.info("working", extra={"task_queues": [offer.queue], "tools": names})
                tell_ready(ready_fd)
                while True:
                    await anyio.sleep(RENEW_S)
                    await renew(client, blobs, offer)
            finally:
                with anyio.CancelScope(shield=True):
                    await shut(worker, settings.worker.grace_s)


async def renew(client: Client, blobs: Blobs, offer: Offer) -> None:
    """What runs here goes on, whether the offer is taken or not."""
    try:
        await put_offer(client, blobs, offer)
    except OutliveError as error:
        _log.error(error.message, extra={"queue": offer.queue, "code": error.code})


async def put_offer(client: Client, blobs: Blobs, offer: Offer) -> None:
    """Until one of ours has taken it. `tool.refused` (conflict) if it does not."""
    task: OfferTask | None = None
    while True:
        try:
            task = task or OfferTask(offer=await blobs.put(offer.model_dump_json().encode()))
            answer: OfferAnswer = await client.execute_activity(
                OFFER_TOOLS,
                task,
                id=f"offer/{new_operation_id()}",
                task_queue=LOOP,
                result_type=OfferAnswer,
                schedule_to_close_timeout=timedelta(seconds=_OFFER_WITHIN_S),
            )
        except (ActivityFailureError, TemporalError, RPCError, OutliveError) as error:
            if isinstance(error, OutliveError) and not error.is_retryable:
                raise
            away = UnavailableError("worker.away", f"No worker has taken the offer of these tools yet ({error}).")
            _log.warning(away.message, extra={"queue": offer.queue})
            await anyio.sleep(_OFFER_RETRY_S)
            continue
        if answer.refused is None:
            return
        raise ConflictError("tool.refused", answer.refused)
