"""What the machines of one node share on their way out, so that none takes it all.

Names are looked up by threads of the node. A machine has a dialer of its own, with few lookups at once, so that many
machines have to ask for names that nobody answers before another one waits.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from outlive.governance.egress_dial import Dialer, DirectDialer

LOOKUPS_AT_ONCE = 64  # of all machines together: sixteen times what one may have


class SharedEgress:
    """Made by `open_shared_egress`."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    def new_dialer(self) -> Dialer:
        """For one machine."""
        return DirectDialer(self._threads)


@contextmanager
def open_shared_egress() -> Iterator[SharedEgress]:
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE, "egress") as threads:
        yield SharedEgress(threads)
