"""What the transactions before left behind, kept for the next: so that most appends need not look before they write.

It is only good while nobody else has written. How that is found out is each backend's business: SQLite tells, and
PostgreSQL compares the heads while it writes. Which batches are in the log is not remembered: a repeat is found out by
the index when it is written, or looked for when it would be refused; then all is done again with a look first.
"""

from outlive.conversation.append import Known, Plan, plan
from outlive.conversation.backends.group import Results
from outlive.conversation.log import Append, Appended

CONVERSATIONS_LIMIT = 1_024
ATTEMPTS_LIMIT = 512


class Memory:
    """Conversations and last attempts as the last transaction left them."""

    def __init__(self) -> None:
        self.known = Known()

    def missing(self, appends: list[Append]) -> list[Append]:
        """Those that cannot be planned without a look."""
        summaries, attempts = self.known.summaries, self.known.attempts
        return [
            append
            for append in appends
            if append.conversation not in summaries
            or (append.writer is not None and (append.conversation, append.writer.step) not in attempts)
        ]

    def tidy(self) -> "Memory":
        """Ready for the next transaction, and bounded: a full memory starts again from nothing."""
        if len(self.known.summaries) > CONVERSATIONS_LIMIT or len(self.known.attempts) > ATTEMPTS_LIMIT:
            return Memory()
        self.known.batches.clear()
        return self


def plan_all(appends: list[Append], known: Known, looked_up: list[Append]) -> tuple[Plan, Results] | None:
    """The plan of a group; None if one is refused that is not among those whose batch, and all that is known of their
    conversation, is what the database says now."""
    into = Plan()
    results = [plan(append, known, into) for append in appends]
    for append, result in zip(appends, results, strict=True):
        if not isinstance(result, Appended) and not any(append is each for each in looked_up):
            return None
    return into, results
