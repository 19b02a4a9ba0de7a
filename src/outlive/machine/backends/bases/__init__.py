"""How bases and the guest's runtime are made and kept on a host. See docs/guides/bases.md."""

from outlive.machine.backends.bases.ensure import ensure_base, find_base, list_bases, remove_base
from outlive.machine.backends.bases.runtime import ensure_runtime, find_runtime, look_for_runtime

__all__ = [
    "ensure_base",
    "ensure_runtime",
    "find_base",
    "find_runtime",
    "list_bases",
    "look_for_runtime",
    "remove_base",
]
