"""The guest as a whole: puts the parts together, gives each request to the part that knows, reaps the dead."""

import os
from collections.abc import Callable

from outlive.guest import words as read
from outlive.guest.commands import Commands, Running, Wish, attach
from outlive.guest.identity import Identity
from outlive.guest.link import Ask, Link
from outlive.guest.loop import Loop
from outlive.guest.refusal import RefusalError
from outlive.guest.spawn import Program, environment, shell
from outlive.guest.users import AGENT, Users
from outlive.guest.wire import Words

_OUTPUT_LIMIT = 64 * 1024 * 1024
_PAGE = 128


class Daemon:
    def __init__(self, socket: str, *, egress: str, relay_port: int, workspace: str, owns_machine: bool) -> None:
        self._loop = Loop()
        self._users = Users()
        self._workspace = workspace
        self._identity = Identity(self._loop, self._users, owns_machine=owns_machine)
        self._commands = Commands(self._loop)
        self._link = Link(self._loop, socket, self)
        self._verbs: dict[str, Callable[[Ask], None]] = {
            "ping": lambda ask: ask.answer({}),
            "slept": self._slept,
            "start": self._start,
            "attach": self._attach,
            "wait": self._wait,
            "find": lambda ask: ask.answer(self._commands.get(read.text(ask.words, "effect")).describe()),
            "effects": self._effects,
            "signal": self._signal,
            "acknowledge": self._acknowledge,
            "forget": self._forget,
        }

    def run(self) -> None:
        self._loop.on_child = self._reap
        self._link.dial()
        self._loop.run()

    # The link's host

    def hello(self) -> Words:
        return {**self._identity.hello(), "effects": self._commands.summary()}

    def welcome(self, words: Words) -> None:
        self._identity.welcome(words)

    def take(self, ask: Ask) -> None:
        verb = self._verbs.get(read.text(ask.words, "do"))
        if verb is None:
            raise RefusalError("invalid", "unknown_verb", f"The guest does not know {ask.words['do']!r}.")
        verb(ask)

    # Commands

    def _start(self, ask: Ask) -> None:
        effect = read.text(ask.words, "effect")
        entry = self._commands.find(effect)
        is_new = entry is None
        if entry is None:
            entry = self._commands.start(effect, self._wish(ask.words))
        self._join(ask, entry, is_new=is_new)

    def _attach(self, ask: Ask) -> None:
        self._join(ask, self._commands.get(read.text(ask.words, "effect")), is_new=False)

    def _join(self, ask: Ask, entry: Running, *, is_new: bool) -> None:
        stdout_from, stderr_from = (read.whole(ask.words, name, 0) for name in ("stdout_from", "stderr_from"))
        said = attach(entry, ask.streams, stdout_from, stderr_from)
        ask.answer({"is_new": is_new, "pid": entry.pid, **entry.describe(), **said})

    def _wish(self, words: Words) -> Wish:
        user = self._users.find(read.text(words, "user", AGENT))
        line = read.maybe_text(words, "command")
        argv = read.texts(words, "argv") if line is None else [shell(), "-c", line]
        env = environment(user, self._identity.env, read.table(words, "env"))
        cwd = os.path.join(self._workspace, read.text(words, "cwd", ""))
        return Wish(
            Program(argv, env, cwd, user),
            read.maybe_number(words, "timeout_s"),
            read.whole(words, "output_limit", _OUTPUT_LIMIT),
            "stdin" in words.get("streams", {}),  # type: ignore[operator]  # the link has looked at it
        )

    def _wait(self, ask: Ask) -> None:
        entry = self._commands.get(read.text(ask.words, "effect"))
        if entry.exit is not None:
            ask.answer(entry.exit)
            return
        entry.waiters.append(ask.answer)
        ask.on_withdrawn = lambda: entry.waiters.remove(ask.answer)

    def _effects(self, ask: Ask) -> None:
        entries = self._commands.page(read.text(ask.words, "after", ""), _PAGE)
        ask.answer({"effects": entries, "is_last": len(entries) < _PAGE})

    def _signal(self, ask: Ask) -> None:
        number = read.whole(ask.words, "signal")
        if not 0 < number < 65:
            raise RefusalError("invalid", "bad_request", f"There is no signal {number}.")
        self._commands.get(read.text(ask.words, "effect")).kill(number)
        ask.answer({})

    def _acknowledge(self, ask: Ask) -> None:
        stdout, stderr = (read.whole(ask.words, name, 0) for name in ("stdout", "stderr"))
        self._commands.acknowledge(read.text(ask.words, "effect"), stdout, stderr)
        ask.answer({})

    def _forget(self, ask: Ask) -> None:
        self._commands.forget(read.text(ask.words, "effect"))
        ask.answer({})

    # Life

    def _slept(self, ask: Ask) -> None:
        self._loop.skip(read.number(ask.words, "seconds"))
        ask.answer({})

    def _reap(self) -> None:
        """Everything that has died: our commands, and orphans that PID 1 inherited."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            self._commands.before_reaped(found.si_pid)
            pid, status = os.waitpid(found.si_pid, 0)
            if not self._commands.reaped(pid, status):
                self._identity.reaped(pid)
