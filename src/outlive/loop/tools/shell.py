"""`shell`: a command in the conversation's machine, typed into a terminal that people can watch and take.

Rule 1: the command carries the step's effect id. Asked again, it is found: in the terminal it was typed into, among the
        commands that the machine runs by itself, or over, in the journal.
Rule 2: what a person holds is not typed into: the call is rejected, and the model is told who has the terminal.
"""

import signal
from contextlib import suppress

from pydantic import Field

from outlive.base import ConflictError, EffectId, NotFoundError, OutliveError
from outlive.conversation.events import ToolCall
from outlive.loop.tools.arguments import Arguments, Text
from outlive.loop.tools.built_in import BuiltIn
from outlive.loop.tools.output import LivePieces
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.reach import ToolMachine
from outlive.loop.tools.results import LOST, result_of
from outlive.loop.tools.stopping import UNKNOWN, find_or_forestall, look_until
from outlive.loop.tools.terminals import QUIET, follow_typed, heard, is_without_shell, type_command
from outlive.machine.door import TIMEOUT_LIMIT_S, TIMEOUT_S, ExecRequest, Output
from outlive.machine.status import Effect
from outlive.machine.terminal.door import Input, RunInTerminal, Signal, TerminalDoor
from outlive.machine.terminal.shell import INTERRUPT, terminal_of

COMMAND_CHARACTERS = 15_000  # at most four bytes each: what can be typed
_REMEMBERED = 1_024


class ShellArguments(Arguments):
    command: Text = Field(
        min_length=1,
        max_length=COMMAND_CHARACTERS,
        description="What to type into bash. Directory and variables stay as the last command left them.",
    )
    timeout_s: float | None = Field(
        None, gt=0, le=TIMEOUT_LIMIT_S, description=f"After so many seconds it is stopped. Unless given: {TIMEOUT_S:g}."
    )
    background: bool = Field(
        False,
        description="Start it and do not wait, for servers. Redirect its output to a file to read it later.",
    )


class ShellTool(BuiltIn[ShellArguments]):
    name = "shell"
    description = (
        "Run a command in the machine's shell and return what it prints. People may watch the terminal and take it "
        "over. Do not start programs that wait for keys."
    )
    arguments = ShellArguments

    def __init__(self) -> None:
        self._without_shell: set[str] = set()  # machines whose terminals mark no prompt

    async def act(self, arguments: ShellArguments, context: ToolContext) -> ToolResult:
        machine = await context.machine()
        known = await machine.find(context.effect_id)
        live = Live(context)
        effect: Effect | None = None
        try:
            if arguments.background:
                return await self._start(machine, arguments, context)
            if known is not None:
                effect, note = await self._take_up(machine, arguments, context, known, live), ""
            else:
                effect, note = await self._run(machine, arguments, context, live)
        except ConflictError as error:
            if error.code == "terminal.leased":
                return _held(error)
            raise
        finally:
            live.end(effect)
        return await result_of(context, machine, effect, note)

    async def interrupt(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """Ctrl-C, then SIGKILL. What was started in the background goes on, and what was over before is told."""
        found = await find_or_forestall(context)
        if found is None or found[1].is_forestalled:
            return None
        machine, effect = found
        if call.arguments.get("background") is True and effect.state != "finished":
            return _started(effect)
        if effect.is_over:
            return await result_of(context, machine, effect)
        for stop in (signal.SIGINT, signal.SIGKILL):
            if effect.is_over:
                return None
            with suppress(ConflictError, NotFoundError):  # it is over by now, or a person has the terminal
                await _signal(machine, context, effect, stop)
            effect = await look_until(machine, context.effect_id, lambda found: found.is_over) or effect
        return None if effect.is_over else ToolResult("lost", UNKNOWN)

    # ── ways to run it ──

    async def _run(
        self, machine: ToolMachine, arguments: ShellArguments, context: ToolContext, live: "Live"
    ) -> tuple[Effect, str]:
        door = machine.terminals
        if door is not None and machine.id not in self._without_shell:
            try:
                return await type_command(machine, door, _typed(arguments, context), live.hear)
            except OutliveError as error:
                if not is_without_shell(error):
                    raise
                if error.code in ("terminal.no_prompt", "terminal.no_shell"):
                    self._remember_without_shell(machine.id)
        request = _by_itself(arguments, context.effect_id)
        return await heard(machine.caller.follow(machine.id, request), live.hear), ""

    def _remember_without_shell(self, machine: str) -> None:
        """So that only its first command waits for a prompt that never comes."""
        if len(self._without_shell) >= _REMEMBERED:
            self._without_shell.clear()
        self._without_shell.add(machine)

    async def _take_up(
        self, machine: ToolMachine, arguments: ShellArguments, context: ToolContext, known: Effect, live: "Live"
    ) -> Effect:
        """One that was begun before: by an attempt whose worker died, say."""
        if known.is_over:
            return known
        terminal = terminal_of(known)
        if terminal is None:
            return await heard(machine.caller.follow(machine.id, _by_itself(arguments, known.id)), live.hear)
        door = _door(machine)
        try:
            return await follow_typed(machine, door, terminal, _typed(arguments, context), live.hear)
        except (ConflictError, NotFoundError) as error:
            if error.code not in ("terminal.ended", "terminal.unknown"):
                raise
            return known.model_copy(update={"state": "lost"})  # the terminal is gone, and its end was not recorded

    async def _start(self, machine: ToolMachine, arguments: ShellArguments, context: ToolContext) -> ToolResult:
        request = _by_itself(arguments, context.effect_id)
        effect = await machine.caller.exec(machine.id, request)
        if effect.state == "finished":  # it could not be started, or an attempt before this one began it
            return await result_of(context, machine, effect)
        return _started(effect)


class Live:
    """The output of one command, shown as it comes."""

    def __init__(self, context: ToolContext) -> None:
        self._say = context.say
        self._streams = {"stdout": LivePieces(), "stderr": LivePieces()}

    def hear(self, output: Output) -> None:
        if text := self._streams[output.stream].take(output.offset, output.data):
            self._say(text, output.stream)

    def end(self, effect: Effect | None) -> None:
        """The rest of it. Where it was typed, its end is known, and the shell's next prompt comes after it."""
        printed = None
        if effect is not None and effect.output_start is not None and effect.output_end is not None:
            printed = effect.output_end - effect.output_start
        for name, pieces in self._streams.items():
            if text := pieces.end(printed):
                self._say(text, name)


def _typed(arguments: ShellArguments, context: ToolContext) -> RunInTerminal:
    return RunInTerminal(
        effect_id=context.effect_id,
        command=arguments.command,
        timeout_s=arguments.timeout_s or TIMEOUT_S,
        operator=context.operator,
    )


def _by_itself(arguments: ShellArguments, effect: EffectId) -> ExecRequest:
    usual_s = TIMEOUT_LIMIT_S if arguments.background else TIMEOUT_S
    return ExecRequest(
        effect_id=effect,
        command=arguments.command,
        env=QUIET,
        timeout_s=arguments.timeout_s or usual_s,
        background=arguments.background,
    )


def _started(effect: Effect) -> ToolResult:
    if effect.state == "lost":
        return ToolResult("lost", LOST)
    return ToolResult("finished", f"Started in the background, as effect {effect.id}.")


def _held(error: OutliveError) -> ToolResult:
    who, since = error.facts.get("operator_name"), error.facts.get("since")
    return ToolResult(
        "rejected",
        f"Nothing was typed: {who!r} has held the terminal since {since}. Wait until it is yielded, work with the "
        "other tools meanwhile, or ask.",
    )


def _door(machine: ToolMachine) -> TerminalDoor:
    if machine.terminals is None:
        raise ConflictError("terminals.off", "The command was typed into a terminal, and there are none here any more.")
    return machine.terminals


# ── stopping it ──


async def _signal(machine: ToolMachine, context: ToolContext, effect: Effect, number: signal.Signals) -> None:
    terminal = terminal_of(effect)
    if terminal is None:
        await machine.use(lambda door, generation: door.signal(machine.id, generation, effect.id, number))
        return
    act = Input(data=INTERRUPT) if number == signal.SIGINT else Signal(number=number)
    generation = (await machine.records.machines.get(machine.id)).generation
    await _door(machine).act(machine.id, generation, terminal, context.operator, act)
