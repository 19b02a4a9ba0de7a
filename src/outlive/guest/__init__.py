"""The guest: PID 1 of a machine. Standard library only; it holds the commands and terminals, and trusts nothing.

It is one thread around one epoll (`loop.py`): no asyncio, whose import alone takes longer than all the rest of a start.
Everything it knows is in memory, so a checkpoint takes it along. The host's end uses `wire.py` and `flow.py` too.
"""
