"""What the machines of one node share on their way out, so that none takes it all.

Names are looked up by threads of the node. A machine has a dialer of its own, with few lookups at once, so that many
machines have to ask for names that nobody answers before another one waits.

A connection takes two descriptors of the node's process, and what else the node does needs some too. So there are
places for a number of connections, and whatever the others take, each machine finds some.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from outlive.governance.egress_dial import Dialer, DirectDialer

LOOKUPS_AT_ONCE = 64  # of all machines together: sixteen times what one may have


class EgressPlaces:
    """Places for the connections of all machines of a node. Half of them are dealt out, so many to each machine, and
    nobody else gets those. Of the rest a machine gets one more for as long as more are free than it has of them."""

    def __init__(self, total: int, machines: int) -> None:
        self.own = max(1, total // (2 * machines))  # of each machine
        self._free = max(0, total - self.own * machines)

    @property
    def free(self) -> int:
        """That are nobody's own."""
        return self._free

    def take(self, held: int) -> bool:
        """Whether a machine that holds so many got one more."""
        if held < self.own:
            return True
        if held - self.own >= self._free:
            return False
        self._free -= 1
        return True

    def give_back(self, held: int) -> None:
        """One of so many that a machine held."""
        if held > self.own:
            self._free += 1


class SharedEgress:
    """Made by `open_shared_egress`."""

    def __init__(self, threads: ThreadPoolExecutor, places: EgressPlaces) -> None:
        self.places = places
        self._threads = threads

    def new_dialer(self) -> Dialer:
        """For one machine."""
        return DirectDialer(self._threads)


@contextmanager
def open_shared_egress(connections: int, machines: int) -> Iterator[SharedEgress]:
    """For so many connections of at most so many machines."""
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE, "egress") as threads:
        yield SharedEgress(threads, EgressPlaces(connections, machines))
