"""Which model is asked when the one that was asked is away. Pure.

Only what a retry might mend leads to another model: an outage, no room, too often, nonsense. What is wrong with the
request itself (bad, refused, too long, a wrong key) would be asked of another model in vain, or behind somebody's back.

    code                 | attempts before a fallback is asked
    ---------------------+------------------------------------
    model.rate_limited   | 3
    model.overloaded     | 3
    model.outage         | 3
    model.garbled        | 2

A provider that wants to be left alone for longer than `WAIT_LIMIT_S` is not waited for. The last model that is left
has all the retries of `errors.RETRIES`. A model that another one stands in for is not asked again in this turn, so that
a turn ends, and does not swing between two of them.
"""

from collections.abc import Mapping, Sequence

from outlive.base import OutliveError

FALLBACKS_LIMIT = 5
WAIT_LIMIT_S = 30.0

ATTEMPTS: Mapping[str, int] = {
    "model.rate_limited": 3,
    "model.overloaded": 3,
    "model.outage": 3,
    "model.garbled": 2,
}


def next_model(
    error: OutliveError, attempts: int, *, model: str, fallbacks: Sequence[str], away: Sequence[str]
) -> str | None:
    """The fallback that the next attempt goes to, after `attempts` of this step with `model` of which the last ended
    with `error`. None: it stays with `model`, or there is no other. `away`: others stand in for these already."""
    most = ATTEMPTS.get(error.code)
    left = [each for each in fallbacks if each != model and each not in away]
    if most is None or not left:
        return None
    is_told_to_wait = error.retry_after_s is not None and error.retry_after_s > WAIT_LIMIT_S
    return left[0] if attempts >= most or is_told_to_wait else None
