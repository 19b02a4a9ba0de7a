"""Tools that are not built in, as turns find them: those that users' workers offer."""

from collections.abc import Collection, Iterator, Mapping

from outlive.loop.tools.facts import RUNS, Runs
from outlive.loop.tools.own.calling import OwnToolCaller
from outlive.loop.tools.own.offers import ToolOffers
from outlive.loop.tools.own.tool import OwnTool

_REMEMBERED = 2_000  # names


class KnownRuns(Mapping[str, Runs]):
    """How tools run beside others: the built-in ones, and what this process has seen of the others. One that it has
    not seen runs alone, which is always right."""

    def __init__(self) -> None:
        self._seen: dict[str, Runs] = {}

    def note(self, name: str, runs: Runs) -> None:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[name] = runs

    def __getitem__(self, name: str) -> Runs:
        return RUNS[name] if name in RUNS else self._seen[name]

    def __iter__(self) -> Iterator[str]:
        yield from RUNS
        yield from self._seen

    def __len__(self) -> int:
        return len(RUNS) + len(self._seen)


class OwnTools:
    """`wait_s`: that a call waits for a worker which has the tool."""

    def __init__(self, offers: ToolOffers, caller: OwnToolCaller, wait_s: float, runs: KnownRuns) -> None:
        self._offers = offers
        self._caller = caller
        self._wait_s = wait_s
        self._runs = runs

    async def find(self, names: Collection[str]) -> dict[str, OwnTool]:
        """Those of `names` that are offered now, in their order."""
        others = [name for name in names if name not in RUNS]
        if not others:
            return {}
        offered = await self._offers.find(others)
        for name, each in offered.items():
            self._runs.note(name, each.tool.runs)
        return {name: OwnTool(offered[name], self._caller, self._wait_s) for name in others if name in offered}
