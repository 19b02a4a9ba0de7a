"""A node's lease, as the node itself reckons it: by a clock that never goes back. Pure.

Rule: from the moment our last renewal was *asked for*, the lease is ours for `lease_s` seconds. After that another node
may soon restore our machines, so they are frozen first. Others wait `NODE_MARGIN_S` longer than that, which covers a
freeze and the difference of two clocks' speed, not of their time.
"""

from typing import Literal, NamedTuple

LEASE_S = 20.0
BEAT_S = 5.0

LeaseStep = Literal["keep", "freeze", "recover"]


class Lease(NamedTuple):
    asked_at: float  # monotonic, of the renewal that was granted last
    is_frozen: bool = False  # we froze our machines because it had run out

    def renewed(self, asked_at: float, granted_at: float, *, was_over: bool, lease_s: float = LEASE_S) -> "Lease":
        """One that came after the last had run out finds a node that was asleep: others may have taken its machines.
        By our clock or, `was_over`, by the database's: ours stood still with us if the whole host was stopped."""
        return Lease(asked_at, self.is_frozen or was_over or granted_at - self.asked_at >= lease_s)

    def decide(self, now: float, *, lease_s: float = LEASE_S) -> LeaseStep:
        is_ours = now - self.asked_at < lease_s
        if not is_ours and not self.is_frozen:
            return "freeze"
        if is_ours and self.is_frozen:
            return "recover"
        return "keep"
