"""Which engine of screen models this process has: the native one, or where that cannot be loaded the one in Python."""

import logging

from outlive.machine.terminal.screen import Screens

_log = logging.getLogger(__name__)


def open_screens() -> Screens:
    try:
        from outlive.machine.backends.screens.ghostty import GhosttyScreens

        return GhosttyScreens()
    except (ImportError, OSError) as error:
        from outlive.machine.backends.screens.bittty import BitttyScreens

        _log.warning("screens are drawn by bittty, which is slower: %s", error)
        return BitttyScreens()
