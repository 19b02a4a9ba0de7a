"""Whether a host can run machines, and what is said if it cannot."""

import pytest

from outlive.base import InvalidError
from outlive.processes.machines import Machines, decide_machines

RUNSC = "/usr/bin/runsc"


def test_a_host_with_root_and_runsc_runs_machines_unless_told_not_to() -> None:
    for enabled in ("auto", "on"):
        assert decide_machines(enabled, is_root=True, runsc="runsc", runsc_path=RUNSC).is_on
    off = decide_machines("off", is_root=True, runsc="runsc", runsc_path=RUNSC)
    assert off == Machines(False, "the setting machines.enabled is off")


@pytest.mark.parametrize(
    ("is_root", "runsc_path", "said"),
    [
        (False, RUNSC, ["not root"]),
        (True, None, ["'runsc' is not installed"]),
        (False, None, ["not root", "'runsc' is not installed"]),
    ],
)
def test_a_host_that_cannot_run_machines_says_everything_that_is_missing(
    is_root: bool, runsc_path: str | None, said: list[str]
) -> None:
    auto = decide_machines("auto", is_root=is_root, runsc="runsc", runsc_path=runsc_path)
    assert not auto.is_on
    with pytest.raises(InvalidError) as refused:
        decide_machines("on", is_root=is_root, runsc="runsc", runsc_path=runsc_path)
    assert refused.value.code == "machines.impossible"
    for text in said:
        assert text in auto.why
        assert text in refused.value.message
