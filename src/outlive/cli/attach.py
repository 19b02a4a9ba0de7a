"""`outlive attach`: a terminal of a machine, here. What a person types goes there, and its output comes here.

Rule 1: however this ends, the person's terminal is as it was before.
Rule 2: the size of whoever holds the lease rules. Others see what fits of it.
Rule 3: what goes into a file or a pipe are the terminal's own bytes. What a person sees is made harmless.
"""

import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from outlive.base import OutliveError
from outlive.cli.attach_pipe import Passing
from outlive.cli.exit import DONE, FAILED
from outlive.cli.keys import HELP, MENU, Keys, Typed, Wish
from outlive.cli.local_terminal import LocalTerminal
from outlive.cli.person_screen import PersonScreen
from outlive.cli.render import clean_line
from outlive.cli.status_line import StatusLine
from outlive.client import AsyncClient, TerminalExit, TerminalFacts, TerminalOutput, TerminalStatus
from outlive.client.attaching import Attachment

PATIENCE_S = 3.0
NOTICE_S = 3.0
_NOTICES = 16  # waiting to be shown; more are dropped
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Asked(NamedTuple):
    terminal: str
    observes: bool
    takes: bool
    offset: int | None
    as_json: bool
    linger_s: float | None = None


def attach_to_screen(asked: Asked) -> int:
    """Until the terminal ends or somebody leaves; returns what to exit with."""
    return anyio.run(_attach, asked)


async def _attach(asked: Asked) -> int:
    local = LocalTerminal()
    is_person = local.is_screen and local.is_keyboard and not asked.as_json
    async with AsyncClient(patience_s=PATIENCE_S) as client:
        facts = await (client.terminals.take if asked.takes else client.terminals.get)(asked.terminal)
        if is_person:
            me = (await client.principals.me()).id
            return await Sitting(client, local, facts, me, observes=asked.observes, offset=asked.offset).run()
        # A pipe has no screen: from now on, unless an offset says otherwise.
        offset = facts.offset if asked.offset is None else asked.offset
        types = not asked.observes and not local.is_keyboard
        attachment = client.terminals.attach(
            facts.id, mode="type" if types else "observe", offset=offset, client=_client_name(), on_lost=_say_lost
        )
        end = await Passing(local, attachment, types=types, as_json=asked.as_json, linger_s=asked.linger_s).run()
    _say_end(facts.id, end)
    return exit_code_of(end)


def exit_code_of(end: TerminalExit | None) -> int:
    """As the program that ran there; nobody's fault if somebody left."""
    if end is None:
        return DONE
    if end.exit_code is not None:
        return end.exit_code
    return FAILED if end.signal is None else 128 + end.signal


def _client_name() -> str:
    return f"outlive attach on {socket.gethostname()}"


def _say_lost(error: OutliveError, wait_s: float) -> None:
    print(f"… {clean_line(error.message)} Trying again in {wait_s:.1f} s.", file=sys.stderr, flush=True)


def _say_end(terminal: str, end: TerminalExit | None) -> None:
    if end is None:
        said = f"detached; it goes on. Come back with: outlive attach {terminal}"
    elif end.exit_code is not None:
        said = f"{terminal} ended with exit code {end.exit_code}"
    elif end.signal is not None:
        said = f"{terminal} was ended by signal {end.signal}"
    else:
        said = f"{terminal} ended: {clean_line(end.reason)}"
    print(f"outlive: {said}", file=sys.stderr, flush=True)


class Sitting:
    """A person at a terminal."""

    def __init__(
        self,
        client: AsyncClient,
        local: LocalTerminal,
        facts: TerminalFacts,
        me: str,
        *,
        observes: bool,
        offset: int | None,
    ) -> None:
        self._client = client
        self._local = local
        self._id = facts.id
        self._status = StatusLine(facts.id, me, observes, title=clean_line(facts.title), lease=facts.lease)
        self._screen = PersonScreen(local, self._status)
        self._keys = Keys()
        self._attachment: Attachment = client.terminals.attach(
            facts.id,
            mode="observe" if observes else "type",
            offset=offset,
            client=_client_name(),
            on_lost=self._lost,
        )
        self._notices: MemoryObjectSendStream[str]
        self._told: MemoryObjectReceiveStream[str]
        self._notices, self._told = anyio.create_memory_object_stream[str](_NOTICES)
        self._has_yielded = False  # and not typed since
        self._wanted: tuple[int, int] | None = None  # the size that was asked for last
        self._is_menu_open = False
        self._end: TerminalExit | None = None
        self._ended_by: int | None = None  # a signal to this process
        self._failed: OutliveError | None = None

    async def run(self) -> int:
        with self._notices, self._told, self._local.raw(self._screen.undo):
            async with anyio.create_task_group() as group:
                for task in (self._watch_signals, self._watch_window, self._show, self._show_notices, self._type):
                    group.start_soon(self._until_done, task, group)
                group.start_soon(self._screen.paint)
            await self._attachment.aclose()
        if self._failed is not None:
            raise self._failed
        _say_end(self._id, self._end)
        return exit_code_of(self._end) if self._ended_by is None else 128 + self._ended_by

    async def _until_done(self, task: Callable[..., Coroutine[Any, Any, None]], group: anyio.abc.TaskGroup) -> None:
        """When one of them is over, all are."""
        try:
            await (task(group) if task == self._type else task())
        except OutliveError as error:
            self._failed = error
        group.cancel_scope.cancel()

    # ── what comes ──

    async def _show(self) -> None:
        async for frame in self._attachment:
            match frame:
                case TerminalOutput():
                    await self._screen.output(frame.data)
                case TerminalStatus():
                    await self._hear(frame)
                case TerminalExit():
                    self._end = frame

    async def _hear(self, status: TerminalStatus) -> None:
        notice = self._status.take(status.words)
        if status.is_attached:
            self._wanted = None
            if self._status.is_lost:
                self._status.is_lost, notice = False, "connected again"
            if status.words.get("screen") is True:
                await self._screen.begin(self._remote)
        elif "offset" in status.words:
            await self._screen.drawn()
        if notice is not None:
            self._say(notice)
        if "refused" in status.words:
            await self._screen.bell()
        await self._fit()
        await self._screen.retitle()

    @property
    def _remote(self) -> tuple[int, int]:
        return self._attachment.cols, self._attachment.rows

    async def _fit(self) -> None:
        """Make the remote screen as large as the window, or show what fits of it."""
        if not self._attachment.cols:
            return  # not known yet
        size = self._local.size()
        if self._types and size not in (self._remote, self._wanted):
            self._wanted = size
            await self._attachment.resize(*size)
        if not self._screen.is_boxed_for(self._remote):
            await self._redraw()

    @property
    def _types(self) -> bool:
        return self._status.holds_lease and not self._status.observes

    async def _redraw(self) -> None:
        """Not while the machine is away or sleeps: a new attachment would wake it, and what was typed meanwhile waits
        with the one that there is. When it is back that is said, and then everything is drawn."""
        if self._status.standing is not None:
            return
        self._keep_mode()
        await self._attachment.redraw()

    def _keep_mode(self) -> None:
        """The next connection types only if we do: nobody takes a lease by looking on."""
        types = self._types and not self._has_yielded
        self._attachment.mode = "type" if types else "observe"

    def _lost(self, error: OutliveError, wait_s: float) -> None:
        self._keep_mode()
        self._status.is_lost = True
        self._say(f"connection lost, trying again in {wait_s:.1f} s; Ctrl-] d leaves. {error.message}")

    # ── what is typed ──

    async def _type(self, group: anyio.abc.TaskGroup) -> None:
        while data := await self._local.read():
            for each in self._keys.feed(data):
                if isinstance(each, Typed):
                    self._close_menu()
                    await self._send(each.data)
                elif each.wish == "detach":
                    return
                else:
                    self._wish(each.wish, group)

    async def _send(self, data: bytes) -> None:
        if self._attachment.mode == "observe":
            if self._status.observes or self._status.lease is not None:
                self._say(f"{self._status.holder}, and you look on; Ctrl-] t takes over")
                return
            self._attachment.mode = "type"
            await self._attachment.redraw()
        self._has_yielded = False
        try:
            await self._attachment.send(data)
        except OutliveError as error:
            await self._screen.bell()
            self._say(error.message)

    def _wish(self, wish: Wish, group: anyio.abc.TaskGroup) -> None:
        if wish in ("menu", "help"):
            self._is_menu_open = True
            self._say(MENU if wish == "menu" else HELP)
            return
        if wish == "take":
            group.start_soon(self._take)
        elif wish == "yield":
            self._has_yielded = True
            group.start_soon(self._yield)
        self._close_menu()

    def _close_menu(self) -> None:
        if self._is_menu_open:
            self._is_menu_open = False
            self._say("")

    async def _take(self) -> None:
        try:
            await self._client.terminals.take(self._id)
        except OutliveError as error:
            self._say(error.message)
            return
        self._status.observes = self._has_yielded = False
        if self._attachment.mode == "observe":
            self._attachment.mode = "type"
            await self._attachment.redraw()

    async def _yield(self) -> None:
        try:
            await self._client.terminals.yield_(self._id)
        except OutliveError as error:
            self._has_yielded = False
            self._say(error.message)

    # ── what is said ──

    def _say(self, text: str) -> None:
        """Show it for a moment; nothing: what is shown goes now."""
        with suppress(anyio.WouldBlock):  # there is more to read already than anybody does
            self._notices.send_nowait(text)

    async def _show_notices(self) -> None:
        while True:
            text = await self._told.receive()
            while text:
                await self._screen.retitle()
                await self._screen.notice(text)
                text = await self._next_notice(text)
            if not self._screen.repaint():
                await self._redraw()

    async def _next_notice(self, text: str) -> str:
        """What to show after this one; nothing when its time is over. A menu stays, and what still stands."""
        while True:
            with anyio.move_on_after(NOTICE_S):
                return await self._told.receive() or self._status.standing or ""
            if not self._is_menu_open:
                return self._status.standing or ""

    # ── signals ──

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(*_ENDING) as signals:
            async for number in signals:
                self._ended_by = int(number)
                return

    async def _watch_window(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                await self._fit()
