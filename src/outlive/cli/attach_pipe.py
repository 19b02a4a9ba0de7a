"""`outlive attach` where nobody sits: from a pipe, into a pipe or a file, or as JSON lines.

What comes in on standard input is typed, or dropped by one who only looks on. When it has ended this leaves as soon as
the terminal has been silent for a while, if something was typed or somebody said for how long. Else it stays until the
terminal ends: a script that follows one has nothing on its standard input.

Rule: silence is none while there is no connection. What came in has been handed over before this leaves, or it fails.
"""

import sys

import anyio

from outlive.base import UnavailableError
from outlive.cli.harmless import Harmless
from outlive.cli.local_terminal import LocalTerminal
from outlive.cli.render import json_text
from outlive.client import TerminalExit, TerminalOutput
from outlive.client.attaching import Attachment

LINGER_S = 2.0  # after the end of what a pipe had to say
AWAY_S = 120.0  # that a pipe waits for a connection: longer than a machine takes that has to be woken first


class Passing:
    def __init__(
        self, local: LocalTerminal, attachment: Attachment, *, types: bool, as_json: bool, linger_s: float | None
    ) -> None:
        self._local = local
        self._attachment = attachment
        self._types = types
        self._as_json = as_json
        self._linger_s = linger_s
        self._harmless = Harmless(shows_titles=False) if local.is_screen else None
        self._heard = anyio.Event()
        self._end: TerminalExit | None = None

    async def run(self) -> TerminalExit | None:
        """How it ended; None: it goes on without us."""
        try:
            async with self._attachment, anyio.create_task_group() as group:
                if self._types or (self._linger_s is not None and not self._local.is_keyboard):
                    group.start_soon(self._type, group.cancel_scope)
                await self._show()
                group.cancel_scope.cancel()
        finally:
            if self._harmless is not None and not self._as_json:
                with anyio.CancelScope(shield=True):
                    await self._local.write(self._harmless.reset())
        return self._end

    async def _show(self) -> None:
        async for frame in self._attachment:
            self._heard.set()
            if isinstance(frame, TerminalExit):
                self._end = frame
            if self._as_json:
                sys.stdout.write(json_text(frame.to_json()) + "\n")
                sys.stdout.flush()
            elif isinstance(frame, TerminalOutput):
                data = frame.data if self._harmless is None else self._harmless.feed(frame.data)
                await self._local.write(data)

    async def _type(self, scope: anyio.CancelScope) -> None:
        has_typed = False
        while data := await self._local.read():
            if self._types:
                has_typed = True
                await self._connected()  # the attachment keeps little of what is typed while there is none
                await self._attachment.send(data)
        if has_typed:
            await self._attachment.end_input()
            await self._connected()
        elif self._linger_s is None:
            return
        else:
            await self._heard.wait()  # silence counts from when we are there
        linger_s = LINGER_S if self._linger_s is None else self._linger_s
        while True:
            self._heard = anyio.Event()
            with anyio.move_on_after(linger_s) as silence:
                await self._heard.wait()
            if silence.cancelled_caught:
                scope.cancel()
                return

    async def _connected(self) -> None:
        """Until what was typed so far has been handed over: a new connection has all of it before its first frame."""
        with anyio.move_on_after(AWAY_S):
            while not self._attachment.is_connected:
                self._heard = anyio.Event()
                await self._heard.wait()
            return
        raise UnavailableError(
            "terminal.not_typed",
            "The server is away: what came in on standard input was not typed, or not all of it. "
            "Look at the terminal before you try again.",
        )
