"""The screen of `outlive demo`: two clients side by side, and what happens to them.

On a terminal both are drawn live; in a pipe each event is a line with the client's name in front.
"""

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from outlive.cli.render import block_of, clean, clean_line, tail_lines
from outlive.cli.screen import is_terminal, open_console
from outlive.client import Event, View

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMES = ("A", "B")
_REMARKS = 9
_LIVE_WIDTH = 50


class Stage(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def say(self, text: str) -> None:
        """Tell what is happening."""

    def show(self, name: str, event: Event, view: View) -> None:
        """Client `name` was shown an event; `view` is its screen with it."""

    def set_state(self, name: str, state: str) -> None:
        """What client `name` is doing now, in a word or two."""


class Silence:
    """For `--json`: only the outcome is printed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def show(self, name: str, event: Event, view: View) -> None:
        pass

    def set_state(self, name: str, state: str) -> None:
        pass


class Lines(Silence):
    """Live text comes in pieces of a word or so: as many as make a line are shown together."""

    def __init__(self) -> None:
        self._live = dict.fromkeys(NAMES, "")

    def say(self, text: str) -> None:
        print(f"==> {text}", flush=True)

    def show(self, name: str, event: Event, view: View) -> None:
        if event.type in ("model.delta", "tool.output"):
            self._live[name] += clean(event.data["text"])
            if len(self._live[name]) >= _LIVE_WIDTH:
                self._end_live(name)
            return
        self._end_live(name)
        for line in _lines(event, view):
            print(f"  {name} | {line}", flush=True)

    def set_state(self, name: str, state: str) -> None:
        self._end_live(name)

    def _end_live(self, name: str) -> None:
        live, self._live[name] = self._live[name].strip(), ""
        if live:
            print(f"  {name} | live: {live}", flush=True)


def _lines(event: Event, view: View) -> list[str]:
    match event.type:
        case "step.rewound":
            return [f"REWOUND: attempt {event.attempt} of the step begins, its earlier text is taken back"]
        case "message.sent" | "model.responded" | "tool.finished":
            said = next((item for item in view.items() if item.get("seq") == event.seq), None)
            if said is not None:
                block = block_of(said)
                return [block.head, *(f"    {line}" for line in block.body.split("\n"))]
    return [f"[{event.seq}] {clean_line(event.type)}"]


class Terminal:
    """Two panels and the remarks below, redrawn in place."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = open_console()
        self._remarks: deque[str] = deque(maxlen=_REMARKS)
        self._views: dict[str, View] = {}
        self._states = dict.fromkeys(NAMES, "not there yet")
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(_type, _error, _traceback)

    def say(self, text: str) -> None:
        self._remarks.append(text)
        self._draw()

    def show(self, name: str, event: Event, view: View) -> None:
        self._views[name] = view
        self._draw()

    def set_state(self, name: str, state: str) -> None:
        self._states[name] = state
        self._draw()

    def _draw(self) -> None:
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        size = self._console.size
        height = max(6, min(22, size.height - _REMARKS - 6))
        table = Table.grid(expand=True, padding=(0, 1))
        for _ in NAMES:
            table.add_column(ratio=1)
        table.add_row(*(self._panel(name, size.width // 2 - 6, height) for name in NAMES))
        remarks = Text("\n".join(f"▸ {remark}" for remark in self._remarks))
        return Group(table, remarks)

    def _panel(self, name: str, width: int, height: int) -> "RenderableType":
        from rich.panel import Panel
        from rich.text import Text

        view = self._views.get(name)
        blocks = [block_of(item) for item in view.items()] if view else []
        body = "\n".join(f"{block.head}\n{block.body}" if block.body else block.head for block in blocks)
        text = Text("\n".join(tail_lines(body, max(10, width), height)), no_wrap=True)
        is_gone = self._states[name].startswith("cut")
        title = Text(f"client {name}: {self._states[name]}")
        return Panel(text, title=title, height=height + 2, border_style="red" if is_gone else "green")


def open_stage(*, is_silent: bool) -> Stage:
    if is_silent:
        return Silence()
    return Terminal() if is_terminal() else Lines()
