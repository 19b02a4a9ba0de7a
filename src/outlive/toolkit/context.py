"""What a tool is told of the call that it runs for: a parameter of the type `ToolContext`, if it wants one."""

import threading

LIVE_LIMIT = 256 * 1024  # characters of one call that are shown live


class ToolContext:
    """One call. `effect_id` is the same however often the call is tried: give it to whatever keeps such keys, and
    nothing is done twice. `attempt` counts from 1; more than that only where the tool is idempotent.

    Everything here may be used from any thread."""

    def __init__(self, *, effect_id: str, conversation: str, turn: str, attempt: int = 1) -> None:
        self.effect_id = effect_id
        self.conversation = conversation
        self.turn = turn
        self.attempt = attempt
        self._said: list[str] = []
        self._size = 0
        self._lock = threading.Lock()
        self._cancelled = threading.Event()

    def say(self, text: str) -> None:
        """Live output, for whoever follows: how far it is. The result does not have it; what is too much is not shown,
        and it may be lost."""
        with self._lock:
            part = str(text)[: LIVE_LIMIT - self._size]
            self._said.append(part)
            self._size += len(part)

    @property
    def is_cancelled(self) -> bool:
        """A person has stopped the turn, or the time is over: a function that is not async looks here, and returns."""
        return self._cancelled.is_set()

    # ── for whoever runs it ──

    def cancel(self) -> None:
        self._cancelled.set()

    def said(self) -> str:
        with self._lock:
            return "".join(self._said)
