"""The error tree. Nothing else in Outlive defines a root.

    OutliveError
    ├── InvalidError          the caller's input is wrong; the same call will never work
    ├── UnauthenticatedError  nobody we know
    ├── DeniedError           somebody we know, who may not
    ├── NotFoundError         no such thing (or none this caller may see)
    ├── ConflictError         the thing is in a state that does not allow this; read again, then decide
    ├── FencedError           a newer attempt or generation has taken over; stop
    ├── ExhaustedError        a bound was reached (size, queue, budget)
    ├── UnavailableError      a part we need is away; try again
    ├── DeadlineError         it took too long; try again
    └── BrokenError           we are at fault: a broken promise, damaged data

Concrete errors are these classes with a `code`: a stable, dotted string (`conversation.archived`) that programs may
rely on. The message is a sentence that names the thing and says what to do; `facts` are small, plain and never secret.
The kind alone decides on a retry (`is_retryable`); HTTP statuses and exit codes are tables in `api/errors.py` and
`cli/exit.py`.
"""

from typing import ClassVar, Literal, get_args

Kind = Literal[
    "invalid",
    "unauthenticated",
    "denied",
    "not_found",
    "conflict",
    "fenced",
    "exhausted",
    "unavailable",
    "deadline",
    "broken",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

Fact = str | int | float | bool | tuple[str, ...] | None


class OutliveError(Exception):
    """The root. Raise one of the kinds below it."""

    kind: ClassVar[Kind]

    def __init__(self, code: str, message: str, *, retry_after_s: float | None = None, **facts: Fact) -> None:
        if type(self) is OutliveError:
            raise TypeError("OutliveError is abstract: raise one of its kinds")
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.facts = facts

    @property
    def is_retryable(self) -> bool:
        return self.kind in ("unavailable", "deadline")


class InvalidError(OutliveError):
    kind = "invalid"


class UnauthenticatedError(OutliveError):
    kind = "unauthenticated"


class DeniedError(OutliveError):
    kind = "denied"


class NotFoundError(OutliveError):
    kind = "not_found"


class ConflictError(OutliveError):
    kind = "conflict"


class FencedError(OutliveError):
    kind = "fenced"


class ExhaustedError(OutliveError):
    kind = "exhausted"


class UnavailableError(OutliveError):
    kind = "unavailable"


class DeadlineError(OutliveError):
    kind = "deadline"


class BrokenError(OutliveError):
    kind = "broken"
