"""The terminal that an agent's commands are typed into: one per machine (and subagent that
works in it), so that people can watch it and take it.

Rule 1: its id is given by the machine and a number. One that has ended, or in which something else runs, is followed by
        the next: the agent is never stuck behind what somebody left there, and the model is told that it moved.
Rule 2: a command that was begun is looked for where it was typed, and nowhere else.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from outlive.base import OutliveError, TerminalId, derive
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.caller import Asked, closing
from outlive.machine.door import Output
from outlive.machine.status import Effect
from outlive.machine.terminal.door import OpenTerminal, RunInTerminal, TerminalDoor
from outlive.machine.terminal.shell import digest_of_run
from outlive.machine.terminal.status import Terminal

TERMINALS_LIMIT = 8  # that are tried for one command
COLUMNS, ROWS = 160, 48
# Nobody sits there to press a key: nothing opens a pager or asks for a password.
QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
_MOVE_ON = frozenset({"terminal.busy", "terminal.line_not_free", "terminal.ended", "terminal.unknown"})

Hear = Callable[[Output], None]


class Typed(NamedTuple):
    effect: Effect
    note: str  # for the model; empty: nothing to say


def terminal_id(seat: str, n: int) -> TerminalId:
    return TerminalId(derive("term", seat, n))


def usable(seat: str, known: dict[TerminalId, Terminal], tried: set[TerminalId]) -> TerminalId:
    """Pure. The first that is open, or was never opened, and was not tried."""
    n = 1
    while True:
        terminal = terminal_id(seat, n)
        record = known.get(terminal)
        if terminal not in tried and (record is None or record.is_open):
            return terminal
        n += 1


async def type_command(machine: ToolMachine, door: TerminalDoor, request: RunInTerminal, hear: Hear) -> Typed:
    """Type it where it can be typed, once, and follow it to its end. Raises what the last terminal refused it with."""
    known = {each.id: each for each in await machine.records.terminals.list(machine.id)}
    seat = machine.seat or machine.id
    first = usable(seat, known, set())
    is_next = first not in known and first != terminal_id(seat, 1)
    note = "This is a new terminal: the one before has ended." if is_next else ""
    tried: set[TerminalId] = set()
    while True:
        terminal = usable(seat, known, tried)
        try:
            if terminal not in known:
                await _open(machine, door, terminal)
            effect = await follow_typed(machine, door, terminal, request, hear)
        except OutliveError as error:
            tried.add(terminal)
            if error.code not in _MOVE_ON or len(tried) >= TERMINALS_LIMIT:
                raise
            note = f"This ran in another terminal, with a shell of its own: {error.message}"
            continue
        return Typed(effect, note)


async def follow_typed(
    machine: ToolMachine, door: TerminalDoor, terminal: TerminalId, request: RunInTerminal, hear: Hear
) -> Effect:
    def ask(generation: int) -> AsyncIterator[Output | Effect]:
        return door.follow(machine.id, generation, terminal, request)

    asked = Asked(request.effect_id, digest_of_run(terminal, request.command))
    return await heard(machine.caller.tell(machine.id, asked, ask), hear)


async def heard(telling: AsyncIterator[Output | Effect], hear: Hear) -> Effect:
    async with closing(telling):
        async for told in telling:
            if isinstance(told, Effect):
                return told
            hear(told)
    raise AssertionError("a command has a result")


async def _open(machine: ToolMachine, door: TerminalDoor, terminal: TerminalId) -> None:
    request = OpenTerminal(terminal=terminal, cols=COLUMNS, rows=ROWS, env=QUIET, owner=machine.owner)
    await machine.caller.use(machine.id, lambda generation: door.open(machine.id, generation, request))


def is_without_shell(error: OutliveError) -> bool:
    """Whether nothing can be typed there at all, or not this: then it is run by itself."""
    return error.code in ("terminal.no_prompt", "terminal.no_shell", "terminal.no_paste", "terminal.bad_command")
