"""Goes on with races that whoever asked for them has left: contestants that are not started, losers that are not let
go. Runs in every worker; doing it twice is harmless.
"""

import logging
from datetime import timedelta

import anyio

from outlive.base import Clock, OutliveError, to_text
from outlive.loop.races.race import RaceRecords
from outlive.loop.races.races import Races

SETTLE_S = 3.0  # that whoever changed it last has to go on with it
_PAGE = 100

_log = logging.getLogger(__name__)


class RaceSweeper:
    def __init__(
        self, races: Races, records: RaceRecords, clock: Clock, *, every_s: float, settle_s: float = SETTLE_S
    ) -> None:
        self._races = races
        self._records = records
        self._clock = clock
        self._every_s = every_s
        self._settle = timedelta(seconds=settle_s)

    async def run(self) -> None:
        """Look at once and then every so often, for ever."""
        while True:
            try:
                await self.sweep()
            except OutliveError as error:
                _log.warning("races were not looked for: %s", error.message)
            await anyio.sleep(self._every_s)

    async def sweep(self) -> int:
        """How many went on."""
        latest, went_on = to_text(self._clock.now() - self._settle), 0
        for race in await self._records.unsettled(limit=_PAGE):
            if race.changed_at > latest:
                continue
            try:
                await self._races.go_on(race)
                went_on += 1
            except OutliveError as error:
                _log.warning("a race does not go on: %s", error.message, extra={"race": race.id})
        return went_on
