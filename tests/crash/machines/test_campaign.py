"""A short course of the crash campaign, the same each time. `make crash` runs a long one."""

from pathlib import Path

import pytest

from crash.machines.campaign import Campaign
from crash.machines.stacks import LEASES, CrashStack

ROUNDS = 15
SEED = 7


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("machine_campaign")
def test_whatever_dies_in_whichever_round_no_command_runs_twice_and_nothing_is_left(tmp_path: Path) -> None:
    with CrashStack(tmp_path, **LEASES).running() as stack:
        Campaign(stack, SEED).run(ROUNDS)
