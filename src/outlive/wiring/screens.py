"""Which engine of screen models this process has: the native one, or where that cannot be loaded the one in Python.
Where the native one fails in the middle, the other takes its place."""

import logging

from outlive.machine.backends.screens.sturdy import SturdyScreens
from outlive.machine.terminal.screen import Screens

_log = logging.getLogger(__name__)


def open_screens() -> Screens:
    try:
        from outlive.machine.backends.screens.ghostty import GhosttyScreens

        return SturdyScreens(GhosttyScreens(), _in_python)
    except (ImportError, OSError) as error:
        _log.warning("screens are drawn by bittty, which is slower: %s", error)
        return SturdyScreens(_in_python())


def _in_python() -> Screens:
    from outlive.machine.backends.screens.bittty import BitttyScreens

    return BitttyScreens()
