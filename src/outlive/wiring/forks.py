"""From settings to what a worker does for forks that were cut off."""

from temporalio.client import Client

from outlive.loop.fork_sweeper import ForkSweeper
from outlive.loop.machine_forks import MachineForks
from outlive.machine.keeper import MachineKeeper
from outlive.wiring.build import Parts, machine_records
from outlive.wiring.machines import make_settler
from outlive.wiring.settings import Settings


def make_fork_sweeper(settings: Settings, parts: Parts, client: Client) -> ForkSweeper:
    """Run by whoever owns it."""
    keeper = MachineKeeper(parts.machines, make_settler(client), parts.clock)
    forks = MachineForks(parts.conversations, keeper, machine_records(parts), parts.clock)
    return ForkSweeper(forks, parts.conversations, parts.machines, parts.clock, every_s=settings.loop.sweep_s)
