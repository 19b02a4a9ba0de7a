"""The door through which others speak to turns. Apart from `loop.py`: an API needs nothing else of it."""

from outlive.conversation.blobs import Blobs
from outlive.loop.backends.temporal_loop import Connected, TemporalLoop
from outlive.loop.client import LoopClient


def make_loop_client(connected: Connected, blobs: Blobs) -> LoopClient:
    """`connected` is asked for Temporal's client each time: it may come later."""
    return TemporalLoop(connected, blobs)
