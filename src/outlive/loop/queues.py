"""The task queue of the loop: part of the wire format, so it never changes."""

LOOP = "outlive-loop"
