"""`outlive follow`: a conversation on the screen, in a pipe or as JSON lines, until somebody leaves."""

import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio

from outlive.base import OutliveError
from outlive.cli.render import Block, PipeFollow, block_of, clean_line, json_text
from outlive.cli.screen import is_terminal, live_text, open_console, styled
from outlive.cli.steps import Tally
from outlive.client import AsyncClient, Event, View

if TYPE_CHECKING:
    from outlive.client import AsyncConversation

PATIENCE_S = 3.0


class Output(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None: ...
    def show(self, events: list[Event]) -> None: ...
    def remark(self, text: str) -> None:
        """Something about the following itself, beside what is followed."""

    def say(self, text: str) -> None:
        """A line in the middle of what is followed."""


class _Stream:
    """What an output that is only written to has in common."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        pass

    def remark(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        self.remark(text)


class JsonLines(_Stream):
    def show(self, events: list[Event]) -> None:
        for event in events:
            sys.stdout.write(json_text(event.to_json()) + "\n")
        sys.stdout.flush()


class Pipe(_Stream):
    def __init__(self) -> None:
        self._text = PipeFollow()

    def show(self, events: list[Event]) -> None:
        sys.stdout.write("".join(self._text.show(event) for event in events))
        sys.stdout.flush()

    def say(self, text: str) -> None:
        sys.stdout.write(self._text.say(text))
        sys.stdout.flush()


class Terminal:
    """What is final scrolls up; what is going on stands below it in a region that can be taken back."""

    def __init__(self) -> None:
        from rich.live import Live

        self._view = View()
        self._tally = Tally()
        self._console = open_console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(_type, _error, _traceback)

    def show(self, events: list[Event]) -> None:
        for event in events:
            item = self._view.fold(event)
            if item is not None or event.type == "step.rewound":
                self._draw()  # first: printing draws the region as it was again, and what is over must not be in it
            if event.type == "step.rewound":
                self.remark(f"↺ attempt {event.attempt} of the step begins; what its last attempt said is taken back")
            if item is not None and not _is_silent(item):
                self._console.print(styled(block_of(item, is_brief=True)))
                self._console.print()
            if (total := self._tally.take(event)) is not None:
                self._draw()
                self._console.print(styled(Block(total, "", "bold")))
        self._draw()

    def _draw(self) -> None:
        blocks = [block_of(item, is_brief=True) for item in self._view.open_items()]
        size = self._console.size
        self._live.update(live_text(blocks, size.width, size.height - 2), refresh=True)

    def remark(self, text: str) -> None:
        self._console.print(styled(Block(text, "", "dim italic")))

    def say(self, text: str) -> None:
        self._console.print(styled(Block(text, "", "bold")))


def _is_silent(item: Mapping[str, Any]) -> bool:
    """An answer that only calls tools: their steps follow."""
    return item["kind"] == "answer" and not item["text"] and bool(item["tool_calls"])


class Idle:
    """Whether everything was shown that there is, and no turn is open."""

    def __init__(self, head: int, turn: str | None) -> None:
        self._head = head
        self._is_turn_open = turn is not None
        self._seq = 0

    def take(self, event: Event) -> None:
        if event.seq is None:
            return
        self._seq = event.seq
        if event.seq > self._head:
            if event.type in ("message.sent", "turn.started"):
                self._is_turn_open = True
            elif event.type == "turn.finished":
                self._is_turn_open = False

    @property
    def is_reached(self) -> bool:
        return self._seq >= self._head and not self._is_turn_open


class Follow:
    def __init__(self, id: str, after: str | None, *, deltas: bool, until_idle: bool, output: Output) -> None:
        self.position = after
        self._id = id
        self._deltas = deltas
        self._until_idle = until_idle
        self._output = output

    async def run(self) -> None:
        async with AsyncClient(patience_s=PATIENCE_S) as client:
            conversation = await client.conversations.get(self._id)
            idle = Idle(conversation.head, conversation.turn)
            if self._until_idle and await self._is_done(conversation):
                return
            following = conversation.follow(self.position, deltas=self._deltas, on_lost=self._say_lost)
            try:
                while True:
                    events = await following.next_events()
                    self._output.show(events)
                    self.position = following.position
                    for event in events:
                        idle.take(event)
                    if self._until_idle and idle.is_reached:
                        return
            finally:
                with anyio.CancelScope(shield=True):
                    await following.aclose()

    async def _is_done(self, conversation: "AsyncConversation") -> bool:
        """Whether the position that was given is the end, and nothing is going on: then no event would come."""
        if conversation.turn is not None or self.position is None:
            return False
        newest, _ = await conversation.events_page(conversation.head - 1, limit=1)
        return bool(newest) and newest[-1].position == self.position

    def _say_lost(self, error: OutliveError, wait_s: float) -> None:
        self._output.remark(f"… {clean_line(error.message)} Trying again in {wait_s:.1f} s.")


def choose_output(*, as_json: bool) -> Output:
    return JsonLines() if as_json else Terminal() if is_terminal() else Pipe()


def follow_to_screen(id: str, after: str | None, *, deltas: bool, until_idle: bool, as_json: bool) -> None:
    """Follow until Ctrl-C (or idle). Says where it left, so that one can go on from there."""
    output = choose_output(as_json=as_json)
    follow = Follow(id, after, deltas=deltas, until_idle=until_idle, output=output)
    try:
        with output:
            anyio.run(follow.run)
    except KeyboardInterrupt:
        if follow.position is not None:
            print(
                f"\nleft at position {clean_line(follow.position)}\n"
                f"go on with: outlive follow {clean_line(id)} --after {clean_line(follow.position)}",
                file=sys.stderr,
                flush=True,
            )
    except BrokenPipeError:
        # Whoever read us has left (`| head`). Nothing more can be said, also not when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
