"""The task queues of Temporal that the machine layer uses. Names are a wire format: never renamed."""

from typing import Final

MACHINES: Final = "outlive-machines"  # workflows, and the activities that only read and write records; any worker
CREATE: Final = "outlive-create"  # activities for whichever node has room

_NODE: Final = "outlive-node-"


def node_queue(node: str) -> str:
    """Activities for exactly this node: for what concerns the machines that it has."""
    return f"{_NODE}{node}"
