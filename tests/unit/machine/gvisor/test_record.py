"""Which state a sandbox is in, from its record and the kernel's word."""

import itertools

import pytest

from outlive.machine.backends.gvisor.record import Phase, SandboxRecord, decide_state
from outlive.machine.spec import Limits

BOTH = (True, False)


@pytest.mark.parametrize("phase", ["making", "starting"])
def test_what_was_cut_off_half_way_is_dead(phase: Phase) -> None:
    for mounted, alive, frozen, paused in itertools.product(BOTH, BOTH, BOTH, BOTH):
        state = decide_state(phase, is_mounted=mounted, is_alive=alive, is_frozen=frozen, is_paused=paused)
        assert state == "dead"


def test_without_its_disk_nothing_lives() -> None:
    for phase in ("making", "prepared", "starting", "started"):
        assert decide_state(phase, is_mounted=False, is_alive=True, is_frozen=False, is_paused=False) == "dead"


def test_one_that_was_started_lives_only_while_its_processes_do() -> None:
    for frozen, paused in itertools.product(BOTH, BOTH):
        assert decide_state("started", is_mounted=True, is_alive=False, is_frozen=frozen, is_paused=paused) == "dead"


@pytest.mark.parametrize(
    ("frozen", "paused", "state"),
    [(False, False, "running"), (False, True, "paused"), (True, False, "frozen"), (True, True, "frozen")],
)
def test_frozen_comes_before_paused(frozen: bool, paused: bool, state: str) -> None:
    assert decide_state("started", is_mounted=True, is_alive=True, is_frozen=frozen, is_paused=paused) == state


def test_one_that_was_prepared_has_no_processes_to_be_dead() -> None:
    assert decide_state("prepared", is_mounted=True, is_alive=True, is_frozen=False, is_paused=False) == "prepared"


def test_a_record_is_read_as_it_was_written() -> None:
    record = SandboxRecord.model_validate(
        {
            "machine": "mach_" + "0" * 32,
            "generation": 7,
            "limits": Limits(cpus=0.3),
            "phase": "started",
            "layers": ["/a", "/b"],
            "processes": [{"pid": 1, "started": 2, "boot": "b"}],
        }
    )
    assert SandboxRecord.model_validate_json(record.model_dump_json()) == record
