"""The demo model behind the port that all models stand behind: what it thinks is said word by word."""

import re
from collections.abc import AsyncGenerator

import anyio

from outlive.loop.models.demo.mind import think
from outlive.loop.models.messages import Answer, ModelRequest, Piece, TextDelta, ToolCall

PACE_S = 0.03  # between two words: about as fast as people read along

_WORD = re.compile(r"\s*\S+\s*")


class DemoModel:
    """A ModelClient. Deterministic: the same conversation gets the same answer, however often it is asked for."""

    def __init__(self, pace_s: float = PACE_S) -> None:
        self._pace_s = pace_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        thought = think(request.messages, frozenset(tool.name for tool in request.tools))
        for word in _WORD.findall(thought.text):
            await anyio.sleep(self._pace_s)
            yield TextDelta(word)
        # Ids of calls differ between steps and not between attempts of one.
        place = (request.step or str(len(request.messages))).removeprefix("step_")
        calls = tuple(
            ToolCall(f"call_{place}_{n}", name, dict(arguments))
            for n, (name, arguments) in enumerate(thought.calls, start=1)
        )
        yield Answer(thought.text, calls, stop_reason="tool_use" if calls else "end_turn")

    async def aclose(self) -> None:
        pass
