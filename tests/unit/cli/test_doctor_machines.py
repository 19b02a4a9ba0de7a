"""What the doctor makes of the nodes that the API knows."""

from typing import Any

from outlive.cli.doctor_machines import judge_nodes

_NOW = "2026-05-04T10:00:00+00:00"


def _node(name: str, lease_until: str, *, is_draining: bool = False) -> dict[str, Any]:
    return {"id": name, "lease_until": lease_until, "is_draining": is_draining}


def test_a_node_lives_as_long_as_its_lease() -> None:
    found = judge_nodes([_node("node_1", "2026-05-04T10:00:12Z"), _node("node_2", "2026-05-04T09:59:00Z")], _NOW)
    assert (found.level, found.detail) == ("ok", "alive: node_1; 1 without a lease")


def test_no_node_alive_is_a_failure_with_a_remedy() -> None:
    for items in ([], [_node("node_1", "2026-05-04T09:59:59Z")]):
        found = judge_nodes(items, _NOW)
        assert found.level == "fail"
        assert found.mend


def test_a_draining_node_is_said_to_be_one() -> None:
    assert "(draining)" in judge_nodes([_node("node_1", "2026-05-04T10:00:12Z", is_draining=True)], _NOW).detail
