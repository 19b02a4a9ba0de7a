"""The port to a model."""

from collections.abc import AsyncGenerator
from typing import Protocol

from outlive.loop.models.messages import ModelRequest, Piece


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
