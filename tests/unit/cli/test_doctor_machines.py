"""What the doctor makes of the nodes that the API knows."""

from typing import Any

from outlive.cli.doctor_machines import judge_nodes


def _node(name: str, *, has_lease: bool = True, is_draining: bool = False) -> dict[str, Any]:
    return {"id": name, "has_lease": has_lease, "is_draining": is_draining}


def test_a_node_lives_as_long_as_its_lease() -> None:
    found = judge_nodes([_node("node_1"), _node("node_2", has_lease=False)])
    assert (found.level, found.detail) == ("ok", "alive: node_1; 1 without a lease")


def test_no_node_alive_is_a_failure_with_a_remedy() -> None:
    for items in ([], [_node("node_1", has_lease=False)]):
        found = judge_nodes(items)
        assert found.level == "fail"
        assert found.mend


def test_a_draining_node_is_said_to_be_one() -> None:
    assert "(draining)" in judge_nodes([_node("node_1", is_draining=True)]).detail
