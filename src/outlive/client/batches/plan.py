"""What is left to do of a batch, from its file and its record. Pure.

    in results                      done: never asked for again
    in failures                     over: asked for again when somebody says `retry`, as the next attempt
    in failures, marked `retrying`  to do: the attempt after the one that failed
    nowhere                         to do: attempt 1, which may be under way on the server already

Rule: what was recorded of something that the file no longer asks for is put aside, never given for an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.client.batches.items import Item

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One item that is to be done."""

    item: Item
    attempt: int

    @property
    def name(self) -> tuple[str, int]:
        return (self.item.key, self.attempt)


@dataclass(frozen=True, slots=True)
class Plan:
    results: list[Line]  # of items that are in the file, each once, under the names they have there now
    failures: list[Line]
    superseded: list[Line]  # results and failures of what is not in the file any more
    tasks: list[Task]


def plan(items: Sequence[Item], results: Iterable[Line], failures: Iterable[Line]) -> Plan:
    known = {item.key: item for item in items}
    done: dict[str, Line] = {}
    failed: dict[str, Line] = {}
    superseded: list[Line] = []
    for lines, kept in ((results, done), (failures, failed)):
        for line in lines:
            item = known.get(str(line.get("key")))
            if item is None:
                superseded.append(line)
            elif item.key not in done:  # done, and killed before the failure of an earlier attempt was taken out
                kept.setdefault(item.key, {**line, "item": item.name})
    tasks = [
        Task(item, _attempt(failed.get(item.key)))
        for item in items
        if item.key not in done and (item.key not in failed or failed[item.key].get("retrying"))
    ]
    return Plan([*done.values()], [*failed.values()], superseded, tasks)


def _attempt(failure: Mapping[str, Any] | None) -> int:
    return 1 if failure is None else int(failure.get("attempt", 1)) + 1


def to_retry(failures: Iterable[Line]) -> list[Line]:
    """The failures, each marked to be tried again."""
    return [{**line, "retrying": True} for line in failures]


@dataclass(frozen=True, slots=True)
class Counts:
    """How a batch stands, in items and in what they cost."""

    items: int
    done: int
    failed: int
    waiting: int
    tokens: Mapping[str, int]
    cost: float | None  # None: of some it is not known

    @property
    def left(self) -> int:
        """Not over yet, or never begun; those that wait for somebody are among them."""
        return self.items - self.done - self.failed

    def to_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("items", "done", "failed", "waiting", "left")}
        return {**shown, "tokens": dict(self.tokens), "cost": self.cost}


def count(items: int, results: Iterable[Line], failures: Iterable[Line], waiting: Iterable[Line]) -> Counts:
    done, failed = [*results], [line for line in failures if not line.get("retrying")]
    tokens = {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0}
    cost: float | None = 0.0
    for line in (*done, *failed):
        for name in tokens:
            tokens[name] += int((line.get("usage") or {}).get(name) or 0)
        if line.get("turn") is not None:
            cost = None if cost is None or line.get("cost") is None else cost + float(line["cost"])
    return Counts(items, len(done), len(failed), len([*waiting]), tokens, None if cost is None else round(cost, 8))
