"""What becomes of an environment's record, and what may be a base of one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from outlive.base import CheckpointId, DeniedError, InvalidError, derive_machine_id, is_id
from outlive.machine.building import build_machines, effect_of, install_spec
from outlive.machine.environment import EnvironmentDefinition
from outlive.machine.environments import (
    BUILT_IN,
    begun,
    built,
    check_base,
    defined_again,
    failed,
    is_being_built,
    new_environment,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = AT + timedelta(hours=1)
CHECKPOINT = CheckpointId("ckpt_" + "1" * 32)
WEB = EnvironmentDefinition(name="web", install=("true",), start=("serve",), ports=(80,), read_only=True, warm=1)


def test_what_has_nothing_to_build_is_ready_at_once() -> None:
    assert new_environment(EnvironmentDefinition(name="plain"), AT).state == "ready"
    assert new_environment(WEB, AT).state == "building"
    assert all(new_environment(each, AT).state == "ready" for each in BUILT_IN.values())


def test_a_build_ends_once_and_only_for_its_own_try() -> None:
    building = new_environment(WEB, AT)
    ready = built(building, 1, CHECKPOINT, LATER)
    assert (ready.state, ready.checkpoint, ready.changed_at) == ("ready", CHECKPOINT, LATER)
    assert failed(ready, 1, "late", LATER) == ready
    assert built(building, 2, CHECKPOINT, LATER) == building
    assert failed(building, 2, "another", LATER) == building


def test_what_failed_is_tried_again_when_it_is_defined_again() -> None:
    lost = failed(new_environment(WEB, AT), 1, "why", AT)
    assert (lost.state, lost.reason) == ("failed", "why")
    again = defined_again(lost, 1, LATER)
    assert (again.state, again.tries, again.reason) == ("building", 2, None)
    assert defined_again(begun(lost, "try-1.log", AT), 1, LATER).log_key is None, "what the try before said is not its"
    assert is_being_built(again, 2)
    assert not is_being_built(again, 1)


def test_a_definition_that_is_given_again_changes_only_the_size_of_its_pool() -> None:
    building = new_environment(WEB, AT)
    assert defined_again(building, 1, LATER) == building
    larger = defined_again(building, 5, LATER)
    assert (larger.warm, larger.state, larger.tries) == (5, "building", 1)
    ready = built(building, 1, CHECKPOINT, AT)
    assert defined_again(ready, 1, LATER) == ready


def test_where_the_log_is_is_written_down_once() -> None:
    first = begun(new_environment(WEB, AT), "key", LATER)
    assert (first.log_key, first.changed_at) == ("key", LATER)
    assert begun(first, "key", AT) is first


def test_machines_and_commands_of_a_build_are_found_again_and_those_of_another_try_are_others() -> None:
    found = new_environment(WEB, AT)
    assert build_machines(found, 1) == build_machines(found.model_copy(update={"name": "other"}), 1)
    ids = {*build_machines(found, 1), *build_machines(found, 2)}
    assert len(ids) == 4
    assert all(is_id(each, "mach") for each in ids)
    effects = {effect_of(found.model_copy(update={"tries": tries}), n) for tries in (1, 2) for n in (0, 1)}
    assert len(effects) == 4


def test_what_is_installed_is_writable_and_without_services() -> None:
    spec = install_spec(WEB)
    assert (spec.start, spec.ports, spec.is_read_only) == ((), (), False)
    assert (spec.base, spec.limits) == (WEB.base, WEB.limits)


def test_a_derived_id_sorts_by_its_moment() -> None:
    early, late = derive_machine_id(AT, "z"), derive_machine_id(LATER, "a")
    assert early < late
    assert derive_machine_id(AT, "z") == early


@pytest.mark.parametrize("base", ["debian", "debian:nodejs", "host", "dir:/srv/images/a", "oci:/srv/images/b#name"])
def test_bases_of_nobody_and_those_in_allowed_folders_are_taken(base: str) -> None:
    check_base(base, [Path("/srv/images")])


@pytest.mark.parametrize("base", ["dir:/srv", "dir:/srv/images-of-others", "tar:/etc/shadow"])
def test_what_else_is_on_a_hosts_disk_is_refused(base: str) -> None:
    for allowed in ([], [Path("/srv/images")]):
        with pytest.raises(DeniedError, match="base_paths"):
            check_base(base, allowed)


@pytest.mark.parametrize("base", ["windows", "dir:relative", "tar:/srv/images/../../etc", ""])
def test_what_is_no_base_is_refused_before_anything_is_built(base: str) -> None:
    with pytest.raises(InvalidError):
        check_base(base, [Path("/")])
