"""Which tools users' workers have: the port to the registry, and what an offer changes in it.

Rule 1: a worker offers all tools of its queue at once, when it starts and every now and then. What it offers no more is
        gone; what changed is seen at the next model step.
Rule 2: a tool stays offered while its worker is away: it may be restarting. Who calls it meanwhile waits, for a bounded
        time.
Rule 3: a name belongs to one queue. Another may have it when its worker was not heard of for `HELD_S`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from outlive.base import ConflictError, ExhaustedError, InvalidError
from outlive.loop.queues import TOOLS_PREFIX
from outlive.loop.tools.facts import RUNS
from outlive.loop.tools.own.wire import Offer, OfferedTool

HELD_S = 600.0  # that a name is kept for a worker that is away
RENEW_S = 60.0  # between two offers of the same
OFFERS_LIMIT = 1_000  # tools, of all workers


class Offered(NamedTuple):
    """A tool and the queue on which it is run. `version` counts how often its description changed."""

    tool: OfferedTool
    queue: str
    version: int
    offered_at: str  # when this version was first
    seen_at: str  # when its worker was last heard of

    @property
    def name(self) -> str:
        return self.tool.name


class ToolOffers(Protocol):
    async def put(self, offer: Offer, at: str) -> Sequence[Offered]:
        """From now on the queue has these tools and no others. Refused as `decide_offer` says; then nothing changes."""
        ...

    async def find(self, names: Collection[str]) -> Mapping[str, Offered]:
        """Those of them that are offered."""
        ...

    async def list(self) -> Sequence[Offered]:
        """All, by name."""
        ...


def decide_offer(known: Sequence[Offered], offer: Offer, at: str) -> list[Offered]:
    """The rows of the queue after its offer, where `known` are all rows before it. Pure."""
    if not offer.queue.startswith(TOOLS_PREFIX):
        raise InvalidError("tool.queue", f"A queue of tools is called {TOOLS_PREFIX}...; {offer.queue!r} is not.")
    names = [tool.name for tool in offer.tools]
    if len(set(names)) < len(names):
        raise InvalidError("tool.doubled", f"A tool of {offer.queue!r} is offered twice; nothing was taken.")
    for name in names:
        if name in RUNS:
            raise ConflictError("tool.built_in", f"{name!r} is the name of a built-in tool: rename yours.")
    before = {each.name: each for each in known}
    for name in names:
        held = before.get(name)
        if held is not None and held.queue != offer.queue and not _is_free(held, at):
            raise ConflictError(
                "tool.taken",
                f"The tool {name!r} is offered by the worker of queue {held.queue!r}, last heard of at {held.seen_at}: "
                "rename one of them, or stop that worker and wait ten minutes.",
            )
    others = [each for each in known if each.queue != offer.queue and each.name not in names]
    if len(others) + len(names) > OFFERS_LIMIT:
        raise ExhaustedError("tool.too_many", f"There are {OFFERS_LIMIT} tools of users already, which is the limit.")
    return [_row(before.get(tool.name), tool, offer.queue, at) for tool in offer.tools]


def _is_free(held: Offered, at: str) -> bool:
    return datetime.fromisoformat(at) - datetime.fromisoformat(held.seen_at) > timedelta(seconds=HELD_S)


def _row(before: Offered | None, tool: OfferedTool, queue: str, at: str) -> Offered:
    if before is not None and before.tool == tool and before.queue == queue:
        return before._replace(seen_at=at)
    return Offered(tool, queue, before.version + 1 if before is not None else 1, at, at)
