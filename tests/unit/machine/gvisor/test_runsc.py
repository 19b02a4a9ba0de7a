"""How runsc is called, and what it leaves behind."""

import json
from pathlib import Path

from outlive.machine.backends.gvisor.runsc import Runsc, container_id

MACHINE = "mach_" + "0" * 32


def test_ids_have_one_length_so_that_none_is_the_beginning_of_another() -> None:
    ids = [container_id(MACHINE, generation) for generation in (0, 1, 16, 2**32 - 1)]
    assert len(set(ids)) == 4
    assert {len(name) for name in ids} == {46}


def test_no_call_gives_the_sandbox_a_network_or_another_platform(tmp_path: Path) -> None:
    argv = Runsc(tmp_path).argv("pause", "x")
    assert argv[1] == f"--root={tmp_path}"
    assert {"--network=none", "--host-uds=open", "--overlay2=none", "--platform=systrap"} <= set(argv)
    assert argv[-2:] == ["pause", "x"]
    assert argv[0] == "runsc"
    assert Runsc(tmp_path, "/opt/runsc").argv("pause", "x")[0] == "/opt/runsc"


def test_paused_is_what_runsc_wrote_down_and_anything_else_is_not(tmp_path: Path) -> None:
    runsc, state = Runsc(tmp_path), tmp_path / "one_sandbox:one.state"
    assert not runsc.is_paused("one")
    for text, is_paused in (
        (json.dumps({"status": "paused"}), True),
        (json.dumps({"status": "running"}), False),
        ('{"status": "pau', False),
        ("[]", False),
    ):
        state.write_text(text)
        assert runsc.is_paused("one") is is_paused


def test_traces_of_one_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for trace in (f"{name}_sandbox:{name}.state", f"{name}_sandbox:{name}.lock", f"runsc-{name}.sock"):
            (tmp_path / trace).touch()
    Runsc(tmp_path).forget("one")
    Runsc(tmp_path).forget("one")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "runsc-two.sock",
        "two_sandbox:two.lock",
        "two_sandbox:two.state",
    ]
