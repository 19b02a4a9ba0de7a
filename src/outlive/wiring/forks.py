"""From settings to what a worker does for forks and races that were cut off."""

from temporalio.client import Client

from outlive.loop.attaching import Attacher
from outlive.loop.fork_sweeper import ForkSweeper
from outlive.loop.machine_forks import MachineForks
from outlive.loop.races.races import Races
from outlive.loop.races.sweeper import RaceSweeper
from outlive.machine.keeper import MachineKeeper
from outlive.wiring.build import Parts, machine_records
from outlive.wiring.loop_client import make_loop_client
from outlive.wiring.machines import make_settler
from outlive.wiring.settings import Settings


def make_fork_sweepers(settings: Settings, parts: Parts, client: Client) -> tuple[ForkSweeper, RaceSweeper]:
    """Run by whoever owns them."""
    every_s = settings.loop.sweep_s
    keeper = MachineKeeper(parts.machines, make_settler(client), parts.clock)
    records = machine_records(parts)
    forks = MachineForks(parts.conversations, keeper, records, parts.clock)
    attacher = Attacher(parts.conversations, keeper, records)

    async def connected() -> Client:
        return client

    loop = make_loop_client(connected, parts.conversations.blobs)
    races = Races(parts.races, parts.conversations, loop, forks, parts.clock)
    return (
        ForkSweeper(forks, attacher, parts.conversations, parts.machines, parts.clock, every_s=every_s),
        RaceSweeper(races, parts.races, parts.clock, every_s=every_s),
    )
