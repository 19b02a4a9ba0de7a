"""The loop's ports on Temporal and on SQL databases. Only wiring chooses one."""
