"""Our errors as Temporal carries them: the code is the type, the kind says whether to try again, and when."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from outlive.base import OutliveError

# A newer attempt has taken over, or the log moved on: whoever looks again knows what to do.
_LOOK_AGAIN = frozenset({"fenced", "conflict"})


def to_failure(error: OutliveError, *, after_s: float | None = None) -> ApplicationError:
    """With `after_s` it is tried again then, whatever the kind says."""
    is_retried = after_s is not None or error.is_retryable or error.kind in _LOOK_AGAIN
    return ApplicationError(
        error.message,
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
        raise to_failure(error) from error
    except BaseExceptionGroup as group:
        failed = group.subgroup(ApplicationError)
        if failed is not None:
            raise _first(failed) from group
        found = group.subgroup(OutliveError)
        if found is None:
            raise
        ours = _first(found)
        assert isinstance(ours, OutliveError)
        raise to_failure(ours) from group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
