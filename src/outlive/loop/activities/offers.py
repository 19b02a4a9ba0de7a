"""Taking what a user's worker offers into the registry of tools. Such a worker has no database: it asks one of ours."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from outlive.base import Clock, OutliveError, to_text
from outlive.conversation.blobs import Blobs
from outlive.loop.failures import as_failure
from outlive.loop.tools.own.offers import ToolOffers
from outlive.loop.tools.own.wire import OFFER_TOOLS, Offer, OfferAnswer, OfferTask


class OfferActivities:
    def __init__(self, offers: ToolOffers, blobs: Blobs, clock: Clock) -> None:
        self._offers = offers
        self._blobs = blobs
        self._clock = clock

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.offer,)

    @activity.defn(name=OFFER_TOOLS)
    async def offer(self, task: OfferTask) -> OfferAnswer:
        with as_failure():
            try:
                offer = Offer.model_validate_json(await self._blobs.get(task.offer))
                await self._offers.put(offer, to_text(self._clock.now()))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                place = ".".join(str(part) for part in first["loc"])
                return OfferAnswer(refused=f"The offer cannot be read: {place}: {first['msg']}.")
            except OutliveError as error:
                if error.is_retryable:
                    raise
                return OfferAnswer(refused=error.message)
            return OfferAnswer()
