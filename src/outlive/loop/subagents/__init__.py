"""Subagents: a call of a tool that is a conversation of its own. `link`: whose child a conversation is, and what came
of it (pure). `starting`: making one. `family`: whoever has to be told of an end, or to be stopped, is."""

from outlive.loop.subagents.link import Link, child_of, children_in, link_of

__all__ = ["Link", "child_of", "children_in", "link_of"]
