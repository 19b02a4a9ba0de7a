"""The port to a model, and how long one waits for it."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from outlive.loop.models.messages import ModelRequest, Piece


class Patience(NamedTuple):
    """How long a provider may keep us waiting, in seconds, before it counts as away. This is the one watch over its
    silence: every byte on the wire ends a silence, also one that says nothing."""

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    silence_s: float = 60.0


class ModelClient(Protocol):
    """A provider of models. One is made per process and shared; every call stands alone."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Ask once, never twice: who calls decides on retries.

        Yields deltas as they come and ends with exactly one `Answer`, whose text is that of all text deltas; or raises
        one of `models.errors`. Whoever iterates holds it in `contextlib.aclosing`: closing it, or cancelling while it
        is awaited, closes the connection to the provider at once.
        """
        ...

    async def aclose(self) -> None:
        """Close what is kept open between calls. A client that is used again opens anew."""
        ...
