"""Where what nobody has foreseen ends: in the log, and not in the end of the node and of all machines on it.

Rule: only an error that is none of ours is kept here. One of ours is somebody's business: it is passed on.
"""

import logging
from collections.abc import Awaitable, Callable

from outlive.base import OutliveError

_log = logging.getLogger(__name__)


async def contain(what: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Do it. Whether it came to its end by itself; if not, the log says how."""
    try:
        await work()
    except OutliveError:
        raise
    except Exception:  # noqa: BLE001  # whatever it is, the node has other things to do
        _log.exception("%s has failed", what)
        return False
    return True
