"""Our errors as Temporal carries them: the code is the type, the kind says whether to try again, and when.

The words of an error are not carried: they may be a provider's, or quote what was said. They are in the conversation's
log where they matter to people, and in the worker's.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from outlive.base import OutliveError

_log = logging.getLogger(__name__)

# A newer attempt has taken over, or the log moved on: whoever looks again knows what to do.
_LOOK_AGAIN = frozenset({"fenced", "conflict"})


def to_failure(error: OutliveError, *, after_s: float | None = None) -> ApplicationError:
    """With `after_s` it is tried again then, whatever the kind says."""
    is_retried = after_s is not None or error.is_retryable or error.kind in _LOOK_AGAIN
    _log.warning("a step of a turn failed: %s", error.message, extra={"code": error.code, "after_s": after_s})
    return ApplicationError(
        error.code,
        error.kind,
        type=error.code,
        non_retryable=not is_retried,
        next_retry_delay=None if after_s is None else timedelta(seconds=after_s),
    )


@contextmanager
def as_failure() -> Iterator[None]:
    """What went wrong, as Temporal carries it. A task group wraps the one error of its body: it is taken out."""
    try:
        yield
    except OutliveError as error:
        raise to_failure(error) from None
    except BaseExceptionGroup as group:
        failed = group.subgroup(ApplicationError)
        if failed is not None:
            raise _first(failed) from None
        found = group.subgroup(OutliveError)
        if found is None:
            raise
        ours = _first(found)
        assert isinstance(ours, OutliveError)
        raise to_failure(ours) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
