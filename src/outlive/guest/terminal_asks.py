"""What the host may ask about terminals."""

from collections.abc import Callable
from functools import partial

from outlive.guest import words as read
from outlive.guest.link import Ask
from outlive.guest.programs import Programs
from outlive.guest.pty import Terminals
from outlive.guest.refusal import RefusalError
from outlive.guest.spawn import marked, shell
from outlive.guest.tty import Size
from outlive.guest.wire import Words

_MOST = 1000  # columns or rows


class TerminalAsks:
    def __init__(self, terminals: Terminals, programs: Programs) -> None:
        self._terminals = terminals
        self._programs = programs

    def verbs(self) -> dict[str, Callable[[Ask], None]]:
        return {
            "terminal_open": self._open,
            "terminal_attach": self._attach,
            "terminal_ack": self._acknowledge,
            "terminal_drop_input": self._drop_input,
            "terminal_line": self._line,
            "terminal_wait": self._wait,
            "terminal_resize": self._resize,
            "terminal_signal": self._signal,
            "terminal_end_group": self._end_group,
            "terminal_close": self._close,
            "terminals": self._list,
        }

    def _open(self, ask: Ask) -> None:
        identity = read.text(ask.words, "terminal")
        terminal = self._terminals.find(identity)
        is_new = terminal is None
        if terminal is None:
            argv = read.texts(ask.words, "argv") if ask.words.get("argv") is not None else [shell()]
            program = self._programs.make(marked(argv), ask.words, {"TERM": "xterm-256color"})
            terminal = self._terminals.open(identity, program, _size(ask.words))
        found = terminal
        found.foreground.look(lambda foreground: ask.answer({**found.describe(foreground), "is_new": is_new}))

    def _attach(self, ask: Ask) -> None:
        terminal = self._terminals.get(read.text(ask.words, "terminal"))
        is_recorder = read.flag(ask.words, "recorder")
        offset = read.maybe_whole(ask.words, "from")
        said: Words = terminal.attach(ask.streams["output"], offset, is_recorder=is_recorder)
        if "input" in ask.streams:
            said["input_at"] = terminal.attach_input(ask.streams["input"])
        ask.answer(said)

    def _acknowledge(self, ask: Ask) -> None:
        self._terminals.get(read.text(ask.words, "terminal")).acknowledge(read.whole(ask.words, "offset"))
        ask.answer({})

    def _drop_input(self, ask: Ask) -> None:
        terminal = self._terminals.get(read.text(ask.words, "terminal"))
        ask.answer(terminal.drop_input(read.whole(ask.words, "upto", 0)))

    def _line(self, ask: Ask) -> None:
        terminal = self._terminals.get(read.text(ask.words, "terminal"))
        terminal.foreground.look(lambda foreground: ask.answer(terminal.look_at_line(foreground)))

    def _wait(self, ask: Ask) -> None:
        terminal = self._terminals.get(read.text(ask.words, "terminal"))
        if terminal.exit is not None:
            ask.answer({"exit": terminal.exit, "end": terminal.describe()["end"]})
            return
        terminal.waiters.append(ask.answer)
        ask.on_withdrawn = lambda: terminal.waiters.remove(ask.answer)

    def _resize(self, ask: Ask) -> None:
        self._terminals.get(read.text(ask.words, "terminal")).resize(_size(ask.words))
        ask.answer({})

    def _signal(self, ask: Ask) -> None:
        self._terminals.get(read.text(ask.words, "terminal")).kill(read.signal_number(ask.words))
        ask.answer({})

    def _end_group(self, ask: Ask) -> None:
        terminal = self._terminals.get(read.text(ask.words, "terminal"))
        ask.answer({"was_there": terminal.end_group(read.whole(ask.words, "group"))})

    def _close(self, ask: Ask) -> None:
        self._terminals.close(read.text(ask.words, "terminal"))
        ask.answer({})

    def _list(self, ask: Ask) -> None:
        """Answered when it is known of each what is in front of it."""
        terminals = self._terminals.all()
        seen: dict[str, Words | None] = {}

        def see(identity: str, foreground: Words | None) -> None:
            seen[identity] = foreground
            if len(seen) == len(terminals):
                ask.answer({"terminals": [terminal.describe(seen[terminal.id]) for terminal in terminals]})

        if not terminals:
            ask.answer({"terminals": []})
        for terminal in terminals:
            terminal.foreground.look(partial(see, terminal.id))


def _size(words: Words) -> Size:
    size = Size(read.whole(words, "columns"), read.whole(words, "rows"))
    if not (0 < size.columns <= _MOST and 0 < size.rows <= _MOST):
        raise RefusalError("invalid", "bad_request", f"A terminal has 1 to {_MOST} columns and rows.")
    return size
