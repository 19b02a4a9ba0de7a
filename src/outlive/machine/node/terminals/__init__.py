"""Terminals on their node: each is recorded, shown to whoever watches, and typed into by whoever holds the lease."""
