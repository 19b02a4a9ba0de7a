"""The screens contract on ghostty."""

import pytest

from outlive.machine.backends.screens.ghostty import GhosttyScreens
from outlive.machine.terminal.screen import Screens
from outlive.testing.screens import ScreensContract


class TestGhosttyScreens(ScreensContract):
    @pytest.fixture
    def screens(self) -> Screens:
        return GhosttyScreens()
