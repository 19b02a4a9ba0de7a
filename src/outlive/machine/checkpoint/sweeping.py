"""Removes what no live checkpoint needs. The plan is pure; the store is asked around it.

Why this can run at any time, beside any number of saves, without an index of chunks and without a lock:

1. Whoever makes a checkpoint says so (`making`) before its first object is put, and goes from `making` to `kept` (or to
   nothing) in one step, after its manifest is there. A checkpoint that is neither is never either again.
2. A checkpoint refers to packs of its own and to packs that its parent refers to (`lineage.py`). Its parent is in
   `kept` from before the child is in `making` until the child is no longer in it: that is the caller's pin.
3. The sweep lists the objects **first** and asks who lives **afterwards**. An object that was listed was put before the
   question, so its maker had said so. If the answer has its maker in neither set, its maker is gone for ever.
4. So a listed pack whose maker is not in `making`, and that no checkpoint in `kept` refers to, can never be referred to
   again. A later checkpoint would have to have it from its parent, which is in `kept` then. Either that parent was in
   `kept` at the question: then it does not refer to the pack. Or it was in `making`: then its own parent was in `kept`
   and does not refer to it either. Or it came later: then the same holds for its parent, back to one of the first two.

A kept checkpoint whose manifest cannot be read stops the sweep: nobody knows what it needs.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from outlive.base import CheckpointId
from outlive.machine.checkpoint.manifest import MANIFESTS, PACKS

_MANIFEST = re.compile(rf"{MANIFESTS}/(ckpt_[0-9a-f]{{32}})")
_PACK = re.compile(rf"{PACKS}/(ckpt_[0-9a-f]{{32}})\.[0-9a-f]{{8}}\.(?:[0-9]+|index)")


class Living(NamedTuple):
    """One answer at one moment (one transaction)."""

    kept: frozenset[CheckpointId]
    """Whole, and wanted: by a machine, an environment, or as the parent of one that is being made."""
    making: frozenset[CheckpointId]


Liveness = Callable[[], Awaitable[Living]]


class Swept(NamedTuple):
    objects: int
    bytes: int


def plan_sweep(listed: Iterable[str], living: Living, needed: frozenset[str]) -> list[str]:
    """The keys to be deleted, in order. `needed` are the objects that the kept checkpoints refer to."""
    manifests: list[str] = []
    packs: list[str] = []
    for key in listed:
        if match := _MANIFEST.fullmatch(key):
            if match[1] not in living.kept and match[1] not in living.making:
                manifests.append(key)
        elif (match := _PACK.fullmatch(key)) and key not in needed and match[1] not in living.making:
            packs.append(key)
    # Manifests first: a sweep that is cut off leaves packs that nobody names, not manifests that name nothing.
    return manifests + packs
