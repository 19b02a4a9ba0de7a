"""Checkpoints in the object store: memory, filesystem delta and manifest of a machine at one moment."""

from outlive.machine.checkpoint.manifest import CheckpointFacts, Manifest
from outlive.machine.checkpoint.progress import Progress, ProgressCallback
from outlive.machine.checkpoint.store import CheckpointStore, Saved
from outlive.machine.checkpoint.sweeping import Liveness, Living, Swept

__all__ = [
    "CheckpointFacts",
    "CheckpointStore",
    "Liveness",
    "Living",
    "Manifest",
    "Progress",
    "ProgressCallback",
    "Saved",
    "Swept",
]
