"""What the command exits with: the one table from the kind of an error to a code."""

from outlive.base import Kind

DONE = 0
FAILED = 1
WRONG_USE = 2
NOT_FOUND = 3
DENIED = 4
UNAVAILABLE = 5
BROKEN_PIPE = 141  # nobody reads what we print any more, as shells have it
INTERRUPTED = 130  # Ctrl-C, as shells have it

EXIT_CODES: dict[Kind, int] = {
    "invalid": WRONG_USE,
    "unauthenticated": DENIED,
    "denied": DENIED,
    "not_found": NOT_FOUND,
    "conflict": FAILED,
    "fenced": FAILED,
    "exhausted": FAILED,
    "unavailable": UNAVAILABLE,
    "deadline": UNAVAILABLE,
    "broken": FAILED,
}
