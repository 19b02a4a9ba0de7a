"""The task queues of the loop: part of the wire format, so they never change."""

LOOP = "outlive-loop"
TOOLS_PREFIX = "outlive-tools/"  # of workers that run users' tools
