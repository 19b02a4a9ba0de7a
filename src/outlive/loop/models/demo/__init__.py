"""The built-in demo model, `demo:`. No language model: a small program that answers as one would, from the conversation
alone, and mends simple Python functions whose test fails."""

from outlive.loop.models.demo.client import PACE_S, DemoModel

__all__ = ["PACE_S", "DemoModel"]
