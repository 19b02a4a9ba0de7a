"""Small commands that file tools have the machine run: as effects where they change something, again and again where
they only look."""

from outlive.base import EffectId
from outlive.loop.tools.port import ToolContext
from outlive.loop.tools.reach import ToolMachine
from outlive.machine.door import ExecRequest
from outlive.machine.status import Effect

WITHIN_S = 60.0
_LOOKS = 3  # at most, where the machine goes down each time


async def change_once(
    machine: ToolMachine, context: ToolContext, script: str, env: dict[str, str], stdin: str | None = None
) -> Effect:
    """Under the step's effect id: done once, whoever asks again."""
    request = ExecRequest(effect_id=context.effect_id, command=script, env=env, stdin=stdin, timeout_s=WITHIN_S)
    return await machine.caller.exec(machine.id, request)


async def look(machine: ToolMachine, context: ToolContext, script: str, env: dict[str, str]) -> Effect:
    """What it prints. It changes nothing, so what was lost is asked for again."""
    for n in range(1, _LOOKS + 1):
        effect = EffectId(f"{context.effect_id}-{n}")
        request = ExecRequest(effect_id=effect, command=script, env=env, timeout_s=WITHIN_S)
        found = await machine.caller.exec(machine.id, request)
        if found.state != "lost":
            break
    return found
