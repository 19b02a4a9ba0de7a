"""Where a host keeps its bases and the guest's runtime, and the functions that make them: what the command calls."""

from pathlib import Path

from outlive.machine.backends.bases import ensure_base, ensure_runtime, find_base, list_bases, remove_base
from outlive.wiring.settings import read_settings

# Shared by every home on the host: a base is large and never changes. The setting `machines.cache` names another place.
BASES = Path("/var/lib/outlive/bases")
RUNTIMES = Path("/var/lib/outlive/runtimes")

__all__ = ["BASES", "RUNTIMES", "ensure_base", "ensure_runtime", "find_base", "find_cache", "list_bases", "remove_base"]


def find_cache(given: Path | None) -> tuple[Path, Path]:
    """Where bases and runtimes are: beside the folder of bases that was given, or where the settings say."""
    if given is not None:
        return given, given.with_name("runtimes")
    cache = read_settings().machines.cache
    return cache / "bases", cache / "runtimes"
