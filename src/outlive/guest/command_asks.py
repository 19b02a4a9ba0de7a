"""What the host may ask about commands."""

from collections.abc import Callable

from outlive.guest import words as read
from outlive.guest.commands import Commands, Running, Wish, attach
from outlive.guest.link import Ask
from outlive.guest.programs import Programs
from outlive.guest.spawn import shell

OUTPUT_LIMIT = 64 * 1024 * 1024
_PAGE = 128


class CommandAsks:
    def __init__(self, commands: Commands, programs: Programs) -> None:
        self._commands = commands
        self._programs = programs

    def verbs(self) -> dict[str, Callable[[Ask], None]]:
        return {
            "start": self._start,
            "attach": self._attach,
            "wait": self._wait,
            "find": lambda ask: ask.answer(self._entry(ask).describe()),
            "effects": self._effects,
            "signal": self._signal,
            "acknowledge": self._acknowledge,
            "forget": self._forget,
        }

    def _entry(self, ask: Ask) -> Running:
        return self._commands.get(read.text(ask.words, "effect"))

    def _start(self, ask: Ask) -> None:
        effect = read.text(ask.words, "effect")
        entry = self._commands.find(effect)
        is_new = entry is None
        if entry is None:
            entry = self._commands.start(effect, self._wish(ask))
        self._join(ask, entry, is_new=is_new)

    def _attach(self, ask: Ask) -> None:
        self._join(ask, self._entry(ask), is_new=False)

    def _join(self, ask: Ask, entry: Running, *, is_new: bool) -> None:
        stdout_from, stderr_from = (read.whole(ask.words, name, 0) for name in ("stdout_from", "stderr_from"))
        said = attach(entry, ask.streams, stdout_from, stderr_from)
        ask.answer({"is_new": is_new, "pid": entry.pid, **entry.describe(), **said})

    def _wish(self, ask: Ask) -> Wish:
        line = read.maybe_text(ask.words, "command")
        argv = read.texts(ask.words, "argv") if line is None else [shell(), "-c", line]
        return Wish(
            self._programs.make(argv, ask.words),
            read.maybe_number(ask.words, "timeout_s"),
            read.whole(ask.words, "output_limit", OUTPUT_LIMIT),
            "stdin" in ask.streams,
        )

    def _wait(self, ask: Ask) -> None:
        entry = self._entry(ask)
        if entry.exit is not None:
            ask.answer(entry.exit)
            return
        entry.waiters.append(ask.answer)
        ask.on_withdrawn = lambda: entry.waiters.remove(ask.answer)

    def _effects(self, ask: Ask) -> None:
        entries = self._commands.page(read.text(ask.words, "after", ""), _PAGE)
        ask.answer({"effects": entries, "is_last": len(entries) < _PAGE})

    def _signal(self, ask: Ask) -> None:
        self._entry(ask).kill(read.signal_number(ask.words))
        ask.answer({})

    def _acknowledge(self, ask: Ask) -> None:
        stdout, stderr = (read.whole(ask.words, name, 0) for name in ("stdout", "stderr"))
        self._commands.acknowledge(read.text(ask.words, "effect"), stdout, stderr)
        ask.answer({})

    def _forget(self, ask: Ask) -> None:
        self._commands.forget(read.text(ask.words, "effect"))
        ask.answer({})
