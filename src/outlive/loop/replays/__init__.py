"""Replays: a turn that is over, run again on another model, in a conversation of its own.

The model is really asked; its calls are answered from the recording, as long as they are those of the recording. Where
they are not, the two part: that is said in the log, and unless somebody asked for more, the turn ends there.
"""

from outlive.loop.replays.answering import Replays, replay_of
from outlive.loop.replays.sides import compare_turns
from outlive.loop.replays.starting import start_replay

__all__ = ["Replays", "compare_turns", "replay_of", "start_replay"]
