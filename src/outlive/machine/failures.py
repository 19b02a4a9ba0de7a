"""Our errors as Temporal carries them: the code is the type, the kind says whether to try again."""

from temporalio.exceptions import ApplicationError

from outlive.base import OutliveError


def to_failure(error: OutliveError) -> ApplicationError:
    return ApplicationError(error.message, error.kind, type=error.code, non_retryable=not error.is_retryable)
