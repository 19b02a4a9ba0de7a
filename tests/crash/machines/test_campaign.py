"""A short course of the crash campaign, the same each time. `make crash` runs a long one."""

from pathlib import Path

import pytest

from crash.machines.campaign import Campaign, two_nodes

ROUNDS = 15
SEED = 16


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("machine_campaign")
def test_whatever_dies_in_whichever_round_no_command_runs_twice_and_nothing_is_left(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (stack, other):
        tally = Campaign(stack, other, SEED).run(ROUNDS)
    assert tally.cut.total() >= 1, "a node was cut off"
    assert any(fate.word == "elsewhere" for fate in tally.fates), tally.fates
