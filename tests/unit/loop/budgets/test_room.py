"""No step is begun that may pass a limit."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.base import InvalidError
from outlive.conversation.events import BudgetLimit
from outlive.loop.budgets import Asked, Budget, Ledger, Short, Used, budget_of, room_for_answer, room_for_tool
from outlive.loop.budgets.room import USEFUL_TOKENS
from outlive.loop.models import Usage, cost_usd
from outlive.loop.models.prices import price_of

MODEL = "anthropic:claude-sonnet-5-5"
PRICE = price_of(MODEL)


def state(now: Used | None = None, before: Used | None = None, **raised: float) -> Ledger:
    added: dict[BudgetLimit, float] = {**raised}  # type: ignore[dict-item]
    both = {"turn": added, "conversation": added}
    return Ledger(None, None, before or Used(), now or Used(), both, 0, None)  # type: ignore[arg-type]


def asking(reads: int = 1000, max_tokens: int = 16_384, model: str = MODEL) -> Asked:
    return Asked(model, reads, max_tokens, price_of(model))


def test_an_answer_is_made_as_short_as_what_is_left() -> None:
    budget = Budget.model_validate({"turn": {"tokens": 5_000}})
    assert room_for_answer(budget, state(), 1, asking()) == 3_800  # what is read is taken 20 % higher
    assert room_for_answer(budget, state(Used(tokens=3_000)), 2, asking()) == 800
    assert room_for_answer(budget, state(), 1, asking(max_tokens=100)) == 100
    short = room_for_answer(budget, state(Used(tokens=3_700)), 2, asking())
    assert short == Short("turn", "tokens", 5_000, 3_700, 156, 5_000)
    assert short.question == (
        "Out of budget: this turn has used 3,700 of 5,000 tokens, and its next step would pass that. "
        "May it use 5,000 tokens more?"
    )
    assert room_for_answer(budget, state(Used(tokens=3_700), tokens=156), 2, asking()) == USEFUL_TOKENS


def test_what_is_asked_for_is_enough_for_the_next_step() -> None:
    used = Used(tokens=290, usd=0.00009)
    for named in ({"tokens": 300}, {"usd": 0.0001}):
        budget = Budget.model_validate({"conversation": named})
        short = room_for_answer(budget, state(used), 1, asking(50_000))
        assert isinstance(short, Short)
        raised = state(used, None, **{str(short.limit): short.amount})
        assert isinstance(room_for_answer(budget, raised, 1, asking(50_000)), int)


def test_steps_are_counted_by_their_place_so_that_none_begins_beyond_them() -> None:
    budget = Budget.model_validate({"turn": {"steps": 3}, "conversation": {"steps": 10}})
    assert room_for_tool(budget, state(), 3) is None
    beyond = room_for_tool(budget, state(Used(steps=1)), 4)
    assert beyond == Short("turn", "steps", 3, 1, 1, 3)
    before = room_for_tool(budget, state(before=Used(steps=9)), 2)
    assert before is not None
    assert (before.scope, before.needs) == ("conversation", 1)
    assert room_for_tool(budget, state(steps=2), 5) is None


def test_time_that_is_over_begins_nothing() -> None:
    budget = Budget.model_validate({"turn": {"seconds": 60}})
    assert room_for_tool(budget, state(Used(seconds=59)), 2) is None
    over = room_for_tool(budget, state(Used(seconds=60)), 2)
    assert over is not None
    assert over.question.startswith("Out of budget: this turn has used 60 of 60 s")
    assert isinstance(room_for_answer(budget, state(Used(seconds=61)), 2, asking()), Short)


def test_a_tool_buys_no_tokens() -> None:
    budget = Budget.model_validate({"turn": {"tokens": 10, "usd": 0.01}})
    assert room_for_tool(budget, state(Used(tokens=10, usd=0.01)), 2) is None


def test_what_nobody_knows_the_price_of_is_never_free() -> None:
    money = Budget.model_validate({"turn": {"usd": 5}})
    with pytest.raises(InvalidError, match="nobody knows the price of 'openai:pretend'"):
        room_for_answer(money, state(), 1, asking(model="openai:pretend"))
    with pytest.raises(InvalidError, match="2 earlier steps of this turn"):
        room_for_answer(money, state(Used(unpriced=2)), 1, asking())
    assert room_for_answer(money, state(before=Used(unpriced=2)), 1, asking()) == 16_384, "those of turns before it"
    tokens = Budget.model_validate({"turn": {"tokens": 50_000}})
    assert isinstance(room_for_answer(tokens, state(), 1, asking(model="openai:pretend")), int)
    assert room_for_answer(money, state(), 1, asking(model="demo:")) == 16_384


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"turn": {"token": 5}}, r"budget\.turn\.token"),
        ({"dollars": 5}, r"budget\.turn\.dollars"),
        ({"tokens": 5, "turn": {}}, r"budget\.tokens"),
        ({"turn": {"tokens": 0}}, "greater than or equal to 1"),
        ({"turn": {"usd": -1}}, "greater than 0"),
        ({"turn": {"steps": 1.5}}, r"budget\.turn\.steps"),
        ({"conversation": {"seconds": math.inf}}, r"budget\.conversation\.seconds"),
    ],
)
def test_a_budget_that_nobody_knows_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidError, match=said) as refused:
        budget_of(given)
    assert refused.value.code == "agent.budget"


def test_no_limit_is_no_budget() -> None:
    assert budget_of(None) is budget_of({}) is budget_of({"turn": {}}) is None


def test_limits_without_a_scope_are_those_of_a_turn() -> None:
    assert budget_of({"tokens": 5}) == Budget.model_validate({"turn": {"tokens": 5}})


LIMITED = st.fixed_dictionaries(
    {}, optional={"tokens": st.integers(1, 40_000), "usd": st.floats(0.0001, 0.5), "steps": st.integers(1, 30)}
)


@given(LIMITED, LIMITED, st.integers(0, 2**32), st.booleans())
@settings(max_examples=300)
def test_no_limit_is_passed_whatever_the_steps_use(
    turn: dict[str, float], conversation: dict[str, float], seed: int, raises: bool
) -> None:
    """Answers that read at most what was estimated, with the margin, and say at most what they may."""
    assert PRICE is not None
    budget, chance = Budget.model_validate({"turn": turn, "conversation": conversation}), Random(seed)
    before = Used()
    given: dict[str, dict[str, float]] = {"turn": {}, "conversation": {}}
    for _ in range(chance.randrange(1, 4)):
        now, n, given["turn"] = Used(), 1, {}
        for _ in range(60):
            ledger = Ledger(None, None, before, now, given, 0, None)  # type: ignore[arg-type]
            reads = chance.randrange(1, 5_000)
            is_tool = chance.random() < 0.4
            room = room_for_tool(budget, ledger, n) if is_tool else room_for_answer(budget, ledger, n, asking(reads))
            if isinstance(room, Short):
                if not raises or chance.random() < 0.5:
                    break
                added = given[room.scope]
                given[room.scope] = {**added, room.limit: added.get(room.limit, 0) + room.amount}
                continue
            n += 1
            now = now._replace(steps=now.steps + 1)
            if room is not None:
                read, said = math.ceil(chance.uniform(0.2, 1.2) * reads), chance.randrange(room + 1)
                kinds = [0, 0, 0]
                kinds[chance.randrange(3)] = min(read, math.ceil(1.2 * reads))
                usage = Usage(kinds[0], said, cache_read_tokens=kinds[1], cache_write_tokens=kinds[2])
                cost = cost_usd(MODEL, usage)
                assert cost is not None
                now = now._replace(tokens=now.tokens + sum(kinds) + said, usd=now.usd + cost)
            for scope, amounts, used in (("turn", turn, now), ("conversation", conversation, before.plus(now))):
                for limit, value in amounts.items():
                    allowed = value + given[scope].get(limit, 0)
                    assert getattr(used, limit) <= allowed + 1e-7, (scope, limit)
        before = before.plus(now)
