"""The guest as a whole: puts the parts together, gives each request to the part that knows, reaps the dead."""

import os
from collections.abc import Callable

from outlive.guest import processes
from outlive.guest import words as read
from outlive.guest.command_asks import CommandAsks
from outlive.guest.commands import Commands
from outlive.guest.files import Files
from outlive.guest.identity import Identity
from outlive.guest.link import Ask, Link
from outlive.guest.loop import Loop
from outlive.guest.previews import Previews
from outlive.guest.programs import Programs
from outlive.guest.pty import Terminals
from outlive.guest.refusal import RefusalError
from outlive.guest.relay import Relay
from outlive.guest.terminal_asks import TerminalAsks
from outlive.guest.users import Users
from outlive.guest.wire import Words


class Daemon:
    def __init__(self, socket: str, *, egress: str, relay_port: int, workspace: str, owns_machine: bool) -> None:
        self._loop = Loop()
        users = Users()
        self._identity = Identity(self._loop, users, owns_machine=owns_machine)
        programs = Programs(users, self._identity, workspace)
        self._commands = Commands(self._loop)
        self._terminals = Terminals(self._loop)
        self._previews = Previews(self._loop)
        self._relay = Relay(self._loop, relay_port, egress)
        self._link = Link(self._loop, socket, self)
        self._verbs: dict[str, Callable[[Ask], None]] = {
            "ping": lambda ask: ask.answer({}),
            "slept": self._slept,
            "quiesce": self._quiesce,
            "activity": self._activity,
            **CommandAsks(self._commands, programs).verbs(),
            **TerminalAsks(self._terminals, programs).verbs(),
            **Files(self._loop, users, workspace).verbs(),
            **self._previews.verbs(),
            **processes.verbs(),
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
        self._relay.is_open = True

    def take(self, ask: Ask) -> None:
        verb = self._verbs.get(read.text(ask.words, "do"))
        if verb is None:
            raise RefusalError("invalid", "unknown_verb", f"The guest does not know {ask.words['do']!r}.")
        verb(ask)

    # Life

    def _slept(self, ask: Ask) -> None:
        self._loop.skip(read.number(ask.words, "seconds"))
        ask.answer({})

    def _quiesce(self, ask: Ask) -> None:
        """Let go of everything that reaches outside; the answer is the last word until somebody is dialled again."""
        self._relay.shut()
        self._previews.shut()
        ask.answer({"unsavable": processes.find_unsavable()})
        self._link.close_after_answers()
        self._link.dial()

    def _activity(self, ask: Ask) -> None:
        now = self._loop.now()
        terminals = [
            {"terminal": terminal.id, "output_ago_s": max(0.0, now - terminal.output_at)}
            for terminal in self._terminals.all()
            if terminal.exit is None
        ]
        ask.answer(
            {
                "commands": self._commands.running,
                "terminals": terminals,
                "previews": self._previews.connections,
                "relayed": self._relay.connections,
            }
        )

    def _reap(self) -> None:
        """Everything that has died: our commands and terminals, and orphans that PID 1 inherited."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            self._commands.before_reaped(found.si_pid)
            pid, status = os.waitpid(found.si_pid, 0)
            if not (self._commands.reaped(pid, status) or self._terminals.reaped(pid, status)):
                self._identity.reaped(pid)
