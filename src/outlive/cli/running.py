"""A turn on the screen, in a pipe or as JSON lines, from the message that begins it to its end."""

import os
import sys

import anyio

from outlive.base import OutliveError
from outlive.cli.clean import clean_line
from outlive.cli.following import Output, choose_output
from outlive.client import AsyncClient, Run

PATIENCE_S = 10.0


class Running:
    def __init__(self, conversation: str, text: str, model: str | None, output: Output) -> None:
        self.run: Run | None = None
        self._conversation = conversation
        self._text = text
        self._model = model
        self._output = output

    @property
    def is_sent(self) -> bool:
        return self.run is not None and self.run.sent is not None

    async def follow(self) -> str | None:
        """The outcome of the turn."""
        async with AsyncClient(patience_s=PATIENCE_S) as client:
            conversation = await client.conversations.get(self._conversation)
            run = self.run = conversation.run(self._text, model=self._model, on_lost=self._say_lost)
            try:
                while events := await run.next_events():
                    self._output.show(events)
            finally:
                with anyio.CancelScope(shield=True):
                    await run.aclose()
            return run.outcome

    def _say_lost(self, error: OutliveError, wait_s: float) -> None:
        self._output.remark(f"… {clean_line(error.message)} Trying again in {wait_s:.1f} s.")


def run_to_screen(conversation: str, text: str, *, model: str | None = None, as_json: bool = False) -> str | None:
    """Send a message and show its turn; its outcome, or None after Ctrl-C, which says how to go on."""
    output = choose_output(as_json=as_json)
    running = Running(conversation, text, model, output)
    try:
        with output:
            return anyio.run(running.follow)
    except KeyboardInterrupt:
        _say_detached(conversation, running)
    except BrokenPipeError:
        # Whoever read us has left (`| head`). Nothing more can be said, also not when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return None


def _say_detached(conversation: str, running: Running) -> None:
    id = clean_line(conversation)
    if not running.is_sent or running.run is None:
        said = f"left before the message was sent; the conversation is {id}"
    else:
        position = running.run.position
        after = f" --after {clean_line(position)}" if position is not None else ""
        said = (
            "detached: the turn goes on\n"
            f"follow it with: outlive follow {id}{after}\n"
            f"stop it with:   outlive interrupt {id}"
        )
    print(f"\n{said}", file=sys.stderr, flush=True)
