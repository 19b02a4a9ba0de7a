"""Every change of the turn's workflow that turns which were open at the time have to survive.

A turn may be open for days and is carried on by whatever version of the worker is there (AUTO_UPGRADE), so a change of
what the workflow asks Temporal for, or of its order, is made under a patch:

    if workflow.patched(Patch.NAME):
        ...the new way
    else:
        ...the old way

What no plan of an older version can say needs no patch (a `wait`, say): no history that is there goes that way, and a
worker that does not know it refuses the plan until it is upgraded.

A patch gets a name with its date here. The old way may go when no turn can be open any more that began before it; the
patch itself one release later (`workflow.deprecate_patch`). The replay of kept histories says whether that was right.
"""

from enum import StrEnum


class Patch(StrEnum):
    """name = "what-changed.YYYY-MM-DD". None so far."""
