"""What tokens cost: `prices.json`, in US dollars for a million tokens. Pure, but for reading that file once.

Every row says when it was looked up and where: prices change, and this table does not by itself. A model that is not in
it is of unknown cost, never of none. What providers add for very long requests, or take off for batches, is left out.
A name with a date behind it (`claude-haiku-4-5-20251001`) costs what the name without costs.
"""

import json
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from outlive.loop.models.messages import Usage

_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class Price(BaseModel):
    """US dollars for a million tokens of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float
    output: float
    cache_read: float
    cache_write: float
    as_of: date
    source: str


@cache
def prices() -> Mapping[str, Price]:
    text = files("outlive.loop.models").joinpath("prices.json").read_text("utf-8")
    return {model: Price.model_validate(price) for model, price in json.loads(text).items()}


def price_of(model: str, known: Mapping[str, Price] | None = None) -> Price | None:
    """Of `provider:name`; None if nobody knows it."""
    known = prices() if known is None else known
    return known.get(model) or known.get(_DATE.sub("", model))


def cost_usd(model: str, usage: Usage, known: Mapping[str, Price] | None = None) -> float | None:
    """What a call of `model` (`provider:name`) cost; None if nobody knows."""
    price = price_of(model, known)
    if price is None:
        return None
    dollars = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    ) / 1_000_000
    return round(dollars, 8)
