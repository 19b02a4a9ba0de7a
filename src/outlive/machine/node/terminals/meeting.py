"""What a machine holds of terminals, and what the records say of them: brought together when it is met.

record of this generation     the node was restarted: it goes on
record of an older one        the machine came up: goes on, or after a seam; `lost` if the guest does not hold it
no record                     a fork has those of its parent; what was opened just before a crash gets its own
record that has ended         the guest may forget it
"""

import logging
from collections.abc import AsyncIterator

from outlive.base import NotFoundError, PrincipalId, TerminalId, is_id, new_terminal_id
from outlive.machine.guest_link import TerminalFacts
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.resident import Resident
from outlive.machine.node.terminals.ending import How, ended
from outlive.machine.node.terminals.reopening import upload_leftovers
from outlive.machine.terminal import epochs
from outlive.machine.terminal.recording import Recordings
from outlive.machine.terminal.status import SIZE_LIMIT, Epoch, Terminal

_GUEST_WITHIN_S = 60.0

_log = logging.getLogger(__name__)


async def meet(parts: NodeParts, recordings: Recordings, resident: Resident) -> AsyncIterator[Terminal]:
    """The records of all terminals that are to be hosted. May be asked again."""
    known = {record.name: record for record in await parts.terminals.list(resident.id)}
    older = []
    for record in known.values():
        if record.is_open and record.epoch.generation == resident.generation:
            yield record
        elif record.is_open:
            older.append(record)
    guest = await resident.door.guest(_GUEST_WITHIN_S)
    held = {facts.terminal: facts for facts in await guest.terminals.list()}
    for record in older:
        taken = await _bring(parts, recordings, resident, record, held.get(record.name))
        if taken.is_open:
            yield taken
    for name, facts in held.items():
        if name in known and not known[name].is_open:
            await guest.terminals.close(name)
        elif name not in known and facts.exit is None:
            yield await parts.terminals.ensure(await _new_record(parts, resident, facts))


async def _bring(
    parts: NodeParts,
    recordings: Recordings,
    resident: Resident,
    record: Terminal,
    facts: TerminalFacts | None,
) -> Terminal:
    """A terminal whose machine came up."""
    record = await upload_leftovers(parts, recordings, record, resident.generation)
    now, holder = parts.clock.now(), (parts.node, resident.generation)
    if facts is None:
        how = How("lost", reason="The machine does not hold it any more.")
        return await parts.terminals.change(
            record.id, lambda found: ended(found, how, found.reserved_to, found.title, now), holder=holder
        )

    def decide(found: Terminal) -> Terminal:
        up, _ = epochs.decide_up(found, facts.start, facts.end, resident.generation, now=now)
        return up.model_copy(update={"cols": _cells(facts.columns), "rows": _cells(facts.rows)})

    return await parts.terminals.change(record.id, decide, holder=holder)


async def _new_record(parts: NodeParts, resident: Resident, facts: TerminalFacts) -> Terminal:
    now = parts.clock.now()
    machine = await parts.machines.get(resident.id)
    try:
        checkpoint = await parts.checkpoints.get(machine.origin) if machine.origin is not None else None
    except NotFoundError:
        checkpoint = None
    if checkpoint is not None:
        of_parent = {record.name: record for record in await parts.terminals.list(checkpoint.machine)}
        if (parent := of_parent.get(facts.terminal)) is not None:
            return epochs.forked(
                parent,
                terminal=new_terminal_id(),
                machine=resident.id,
                guest_end=facts.end,
                generation=resident.generation,
                now=now,
            )
    return Terminal(
        id=await _free_id(parts, facts.terminal),
        machine=resident.id,
        name=facts.terminal,
        owner=PrincipalId(machine.owner),
        cols=_cells(facts.columns),
        rows=_cells(facts.rows),
        epoch=Epoch(generation=resident.generation),
        created_at=now,
        changed_at=now,
    )


async def _free_id(parts: NodeParts, name: str) -> TerminalId:
    """The id that the guest calls it by, if that is one and stands for nothing else."""
    if not is_id(name, "term"):
        return new_terminal_id()
    try:
        await parts.terminals.get(TerminalId(name))
    except NotFoundError:
        return TerminalId(name)
    return new_terminal_id()


def _cells(said: int) -> int:
    return min(max(1, said), SIZE_LIMIT)
