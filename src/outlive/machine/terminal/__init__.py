"""Terminals: what is known and decided about them, and the ports to where they are kept, shown and operated."""
