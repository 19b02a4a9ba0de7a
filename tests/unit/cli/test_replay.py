"""What a replay that parted advises exists, over HTTP and on the command line."""

import re

import pytest

from outlive.api.replay_shapes import NewReplay
from outlive.cli import main as command
from outlive.loop.replays.answering import PARTED


def test_a_replay_that_parted_names_the_field_and_the_flag_that_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    [field, flag] = re.findall(r"`([^`]+)`", PARTED)
    assert field in NewReplay.model_fields
    assert command.run(["replay", "--help"]) == 0
    assert f" {flag} " in capsys.readouterr().out
