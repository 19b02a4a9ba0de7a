"""The screens contract on bittty."""

import pytest

from outlive.machine.backends.screens.bittty import BitttyScreens
from outlive.machine.terminal.screen import Screens
from outlive.testing.screens import ScreensContract


class TestBitttyScreens(ScreensContract):
    @pytest.fixture
    def screens(self) -> Screens:
        return BitttyScreens()
