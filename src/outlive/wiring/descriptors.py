"""How many files and sockets this process may have open. Each follower, each connection of a machine takes some."""

import logging
import resource

_ENDLESS = 1_048_576  # where there is no limit: what the kernel allows, unless somebody changed that

_log = logging.getLogger(__name__)


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENDLESS if soft == resource.RLIM_INFINITY else soft


def take_descriptors() -> int:
    """Raise the limit as far as we may; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            _log.warning("the limit of open files stays at %d: %s", soft, error)
    return descriptor_limit()
