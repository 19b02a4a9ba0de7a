"""Where a host keeps its bases and the guest's runtime, and the functions that make them: what the command calls."""

from pathlib import Path

from outlive.machine.backends.bases import ensure_base, ensure_runtime, find_base, list_bases, remove_base

# Shared by every home on the host: a base is large and never changes.
BASES = Path("/var/lib/outlive/bases")
RUNTIMES = Path("/var/lib/outlive/runtimes")

__all__ = ["BASES", "RUNTIMES", "ensure_base", "ensure_runtime", "find_base", "list_bases", "remove_base"]
