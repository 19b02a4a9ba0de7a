"""What is left for the next step, before it is begun. Pure.

Rule 1: a step is begun only if what it may use at most fits into what is left of every limit. An answer may be made
        shorter for that (`max_tokens`), as long as it is still good for something.
Rule 2: what an answer will read is estimated, and the estimate is taken a little higher. A provider that counts more
        than that can pass a limit by the difference, once.
Rule 3: time is looked at before a step: one that is under way is not stopped. A command has a timeout of its own.
Rule 4: what nobody knows the price of is never free: under a limit of money it is refused.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from outlive.base import InvalidError
from outlive.conversation.events import BudgetLimit, BudgetScope
from outlive.loop.budgets.amounts import Budget
from outlive.loop.budgets.ledger import LIMITS, Ledger
from outlive.loop.models.prices import Price

USEFUL_TOKENS = 256  # an answer that may not even have so many is not asked for
_MARGIN = 1.2  # what is read may be more than was estimated
_MILLION = 1_000_000
_SCOPES: tuple[BudgetScope, ...] = ("turn", "conversation")


class Asked(NamedTuple):
    """An answer that is about to be asked for: what it reads, as estimated, and the most that it may say."""

    model: str
    reads: int
    max_tokens: int
    price: Price | None


class Short(NamedTuple):
    """A limit that the next step would pass. `needs`: what has to be added at least for it."""

    scope: BudgetScope
    limit: BudgetLimit
    allowed: float
    used: float
    needs: float
    named: float  # as the definition has it

    @property
    def amount(self) -> float:
        """What a person is asked for: as much again, and at least what the next step needs."""
        return max(self.named, self.needs)

    @property
    def question(self) -> str:
        what = "turn" if self.scope == "turn" else "conversation"
        used = _number(self.limit, self.used)
        return (
            f"Out of budget: this {what} has used {used} of {_say(self.limit, self.allowed)}, and its next step would "
            f"pass that. May it use {_say(self.limit, self.amount)} more?"
        )


def _number(limit: BudgetLimit, value: float) -> str:
    match limit:
        case "usd":
            return f"${value:,.4f}".rstrip("0").rstrip(".")
        case "seconds":
            return f"{value:,.0f}"
        case _:
            return f"{math.ceil(value):,}"


def _say(limit: BudgetLimit, value: float) -> str:
    return _number(limit, value) + {"usd": "", "seconds": " s"}.get(limit, f" {limit}")


def room_for_tool(budget: Budget, ledger: Ledger, n: int) -> Short | None:
    """Whether a tool step may be begun at place `n` of the turn."""
    return next(_shorts(budget, ledger, n, None), None)


def room_for_answer(budget: Budget, ledger: Ledger, n: int, asked: Asked) -> int | Short:
    """How many tokens the answer at place `n` of the turn may have. `budget.unknown_price` (invalid) if a limit of
    money cannot be kept."""
    if budget.has_money:
        _refuse_unpriced(budget, ledger, asked)
    short = next(_shorts(budget, ledger, n, asked), None)
    if short is not None:
        return short
    rooms = [_room(left, asked) for left in _lefts(budget, ledger)]
    return min([asked.max_tokens, *rooms])


class _Left(NamedTuple):
    scope: BudgetScope
    limit: BudgetLimit
    named: float
    allowed: float
    used: float

    @property
    def value(self) -> float:
        return self.allowed - self.used


def _lefts(budget: Budget, ledger: Ledger) -> Iterator[_Left]:
    """Of every limit that there is."""
    for scope in _SCOPES:
        amounts, raised, used = getattr(budget, scope), ledger.raised[scope], ledger.used(scope)
        for limit in LIMITS:
            named = amounts.of(limit)
            if named is not None:
                yield _Left(scope, limit, named, named + raised.get(limit, 0), getattr(used, limit))


def _shorts(budget: Budget, ledger: Ledger, n: int, asked: Asked | None) -> Iterator[Short]:
    for left in _lefts(budget, ledger):
        needs = _needs(left, ledger, n, asked)
        if needs > 0:
            yield Short(left.scope, left.limit, left.allowed, left.used, needs, left.named)


def _needs(left: _Left, ledger: Ledger, n: int, asked: Asked | None) -> float:
    """What is missing for the step; 0 if it fits."""
    match left.limit:
        case "steps":
            # By its place: tools that begin at the same moment each have one of their own.
            place = n + ledger.beside + (0 if left.scope == "turn" else ledger.before.steps)
            return max(0.0, place - left.allowed)
        case "seconds":
            return 1.0 - left.value if left.value <= 0 else 0.0
        case _ if asked is None:
            return 0.0  # a tool buys nothing
        case _:
            least = min(asked.max_tokens, USEFUL_TOKENS)
            return 0.0 if _room(left, asked) >= least else _price_of_least(left.limit, asked, least) - left.value


def _room(left: _Left, asked: Asked) -> int:
    """How many tokens may be said so that this limit is kept."""
    reads = math.ceil(asked.reads * _MARGIN)
    if left.limit == "tokens":
        return max(0, math.floor(left.value) - reads)
    if left.limit == "usd" and asked.price is not None:
        money = left.value - reads * _dearest_input(asked.price)
        if money < 0:
            return 0
        return asked.max_tokens if asked.price.output == 0 else math.floor(money * _MILLION / asked.price.output)
    return asked.max_tokens


def _price_of_least(limit: BudgetLimit, asked: Asked, least: int) -> float:
    reads = math.ceil(asked.reads * _MARGIN)
    if limit == "tokens" or asked.price is None:
        return float(reads + least)
    # One token more than least: what is left after rounding must still do.
    return reads * _dearest_input(asked.price) + (least + 1) * asked.price.output / _MILLION


def _dearest_input(price: Price) -> float:
    """For one token that is read, wherever from."""
    return max(price.input, price.cache_write, price.cache_read) / _MILLION


def _refuse_unpriced(budget: Budget, ledger: Ledger, asked: Asked) -> None:
    if asked.price is None:
        raise unknown_price(asked.model)
    scope: BudgetScope = "conversation" if budget.conversation.usd is not None else "turn"
    if ledger.used(scope).unpriced:
        raise InvalidError(
            "budget.unknown_price",
            f"The budget is in dollars, and nobody knows what {ledger.used(scope).unpriced} earlier steps of this "
            f"{scope} cost. Go on in a fork, or with an agent whose budget is in tokens.",
        )


def unknown_price(model: str) -> InvalidError:
    return InvalidError(
        "budget.unknown_price",
        f"The budget is in dollars, and nobody knows the price of {model[:100]!r}: name a model that is in the list of "
        "prices, or limit its tokens.",
    )
