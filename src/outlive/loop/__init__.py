"""A LAYER: the agent loop. What to do next: turns, model steps, tool steps. See ARCHITECTURE.md."""
