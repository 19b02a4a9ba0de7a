"""A short course of the crash campaign of turns, the same each time. `make crash ARGS=loop` runs a long one."""

from pathlib import Path

import anyio
import pytest

from crash.loop.campaign import Campaign
from crash.loop.kinds import KINDS
from crash.loop.stacks import loop_stack

SEED = 7


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("loop_campaign")
def test_whatever_is_killed_turns_end_and_nothing_is_done_bought_or_said_twice(tmp_path: Path) -> None:
    with loop_stack(tmp_path, OUTLIVE_LOOP__SWEEP_S="2") as stack:
        # A few events between two kills, so that they hit all kinds and not only the first.
        campaign = Campaign(stack, SEED, kills=20, turns=len(KINDS), every_s=0.3, say=lambda _: None, stride=8)
        tally = anyio.run(campaign.run, 5)
        assert tally.wrongs == []
        assert sum(tally.killed.values()) == 20
        assert all(tally.kinds[kind.name] for kind in KINDS), tally.kinds
        stack.down()
