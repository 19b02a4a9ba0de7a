"""Stopping what a tool has the machine do, because a person has stopped the turn, or wants to be heard at once.

Rule 1: what had not begun never begins, though who is to begin it stands still now: its effect id is used up, in the
        conversation's machine, whatever that does, and in every one that it may get later.
Rule 2: what had begun is told by what the machine's journal says of it. What it does not say nobody knows: it is lost.
"""

import signal
from collections.abc import Callable
from contextlib import suppress

import anyio

from outlive.base import ConflictError, EffectId, NotFoundError
from outlive.loop.tools.port import ToolContext, ToolResult
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.status import Effect

INTERRUPTED = "[interrupted: a person stopped this]"
UNKNOWN = "[interrupted: a person stopped this; how far it came is unknown, so look before you repeat it]"
NOT_BEGUN = "[not begun: a message that was to be read at once came first]"
MAY_HAVE_BEGUN = "An attempt before may have begun this; what came of it is unknown, so look before you repeat it."
_LOOK_S = 0.05
_LOOKS = 20  # that something may take to end after it was told to


async def find_or_forestall(context: ToolContext, effect: EffectId | None = None) -> tuple[ToolMachine, Effect] | None:
    """The step's effect, which may have begun; None where nothing has and nothing will."""
    if context.parts.machines is None:
        return None
    effect = effect or context.effect_id
    return await context.parts.machines.forestall(context.conversation, effect, context.machines)


async def look_until(
    machine: ToolMachine, effect: EffectId, is_so: Callable[[Effect], bool], looks: int = _LOOKS
) -> Effect | None:
    """Until the journal says so, for a moment. What it says then, which may be nothing."""
    for _ in range(looks):
        found = await machine.find(effect)
        if found is not None and is_so(found):
            return found
        await anyio.sleep(_LOOK_S)
    return await machine.find(effect)


async def stop_change(context: ToolContext) -> ToolResult | None:
    """A short command that changes something once: it is let end, or killed. None if it changed nothing."""
    found = await find_or_forestall(context)
    if found is None:
        return None
    machine, begun = found
    effect = await look_until(machine, begun.id, _is_over, looks=_LOOKS // 2) or begun
    if effect.is_over:
        return _told(effect)
    for number in (signal.SIGTERM, signal.SIGKILL):  # it takes away what it has half written, if it can
        with suppress(ConflictError, NotFoundError):  # it is over by now
            await _send(machine, begun.id, number)
        effect = await look_until(machine, begun.id, _is_over, looks=_LOOKS // 2) or begun
        if effect.is_over:
            break
    return ToolResult("lost", UNKNOWN)


def _is_over(effect: Effect) -> bool:
    return effect.is_over


async def _send(machine: ToolMachine, effect: EffectId, number: signal.Signals) -> None:
    await machine.use(lambda door, generation: door.signal(machine.id, generation, effect, number))


def _told(effect: Effect) -> ToolResult | None:
    if effect.state == "finished" and effect.exit_code == 0:
        return ToolResult("finished", "It was done just before a person stopped it.", 0)
    return None if effect.state == "finished" else ToolResult("lost", UNKNOWN)
