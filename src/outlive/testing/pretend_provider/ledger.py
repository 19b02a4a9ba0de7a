"""What the pretend provider was asked: every call, to the end of its life, and the newest requests themselves."""

from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass
from typing import Any

REQUESTS_LIMIT = 32 * 1024 * 1024  # bytes of requests that are kept; the oldest go first
CALLS_LIMIT = 200_000


@dataclass(slots=True)
class Call:
    """One call. `outcome`: under_way, answered, left (the client went), refused, or the trouble that was made.

    Only what was `answered` was bought whole. Times are seconds since 1970, so that they compare with a log's.
    """

    number: int
    api: str
    step: str
    model: str
    answer: int  # which answer of the script
    nth: int  # of this step
    outcome: str
    started_at: float
    ended_at: float | None = None
    pieces: int = 0

    def document(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._counts: Counter[str] = Counter()
        self._requests: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def open(self, api: str, key: str, step: str, model: str, answer: int, body: bytes, now: float) -> Call:
        self._counts[key] += 1
        call = Call(len(self.calls) + 1, api, step, model, answer, self._counts[key], "under_way", now)
        if len(self.calls) < CALLS_LIMIT:
            self.calls.append(call)
        self._requests[call.number] = body
        self._size += len(body)
        while self._size > REQUESTS_LIMIT and len(self._requests) > 1:
            self._size -= len(self._requests.popitem(last=False)[1])
        return call

    def request(self, number: int) -> bytes | None:
        return self._requests.get(number)

    def of_step(self, step: str) -> list[Call]:
        return [call for call in self.calls if call.step == step]
