"""What a machine that came up still holds of what was done in it, and what is said of the rest.

    in the journal                            in the guest's ledger       what becomes of it
    begun before the checkpoint, not over     held                        goes on, and is followed
    the same                                  not held, or no memory      `lost`
    over, and was over at the checkpoint      -                           is in it
    over, and was under way then              has ended there too         is in it: that was told a little later
    the same                                  anything else               rolled back
    begun after the checkpoint                -                           rolled back; `lost` too, if it was not over

Rule 1: what was told stays. What of it is under way again in the machine that came back is ended: nobody follows it,
        so it would wait for ever with a full pipe, and keep its machine from ever being idle.
Rule 2: what was typed into a terminal is told by that, and not by the ledger. It goes on there, for all to see.
"""

import logging
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

from outlive.base import ConflictError, EffectId, OutliveError
from outlive.machine.command import HeldEffect
from outlive.machine.guest_link import Guest
from outlive.machine.node.parts import NodeParts
from outlive.machine.node.up import Source
from outlive.machine.status import Checkpoint, Effect, Machine
from outlive.machine.terminal.shell import terminal_of

_log = logging.getLogger(__name__)

_PAGE = 500
_END_WITHIN_S = 10.0  # all that is under way again and was told
_NO_OUTPUT = 2**52  # beyond all that a command has printed

Ledger = Mapping[EffectId, HeldEffect]


async def settle_effects(parts: NodeParts, record: Machine, source: Source, guest: Guest) -> Sequence[EffectId]:
    """What the machine no longer holds of what was done in it; what was under way and is not in it is `lost`. What is
    still begun then, and not in the guest's ledger, was never started (`runs`)."""
    if record.state == "hibernated" and source.has_memory:
        # Nothing was done in it since it was saved. What was asked for meanwhile never came to it, and still may.
        return ()
    checkpoint = source.checkpoint if record.checkpoint is not None else None
    mark = 0 if checkpoint is None else checkpoint.effects_mark
    ledger: Ledger = {}
    if source.has_memory and checkpoint is not None:
        ledger = {held.effect: held for held in await guest.effects()}
    begun = await parts.effects.begun(record.id) if source.has_memory else ()
    # Fenced: a step that was overtaken must not touch what runs in the newer generation.
    await parts.effects.lose(
        record.id,
        above=0,
        at=parts.clock.now(),
        except_ids=[effect.id for effect in begun if effect.n <= mark and goes_on(effect, ledger)],
        holder=(parts.node, record.generation),
    )
    if record.state == "starting":
        return ()
    gone: list[EffectId] = []
    if checkpoint is not None and record.state != "hibernated":
        gone += [each.id for each in await _over_since(parts, checkpoint) if is_rolled_back(each, ledger)]
    gone += await _begun_since(parts, record, mark)
    await _let_go_of_told(parts, record, guest, ledger)
    return gone


# ── decisions ──


def goes_on(effect: Effect, ledger: Ledger) -> bool:
    """Of one that is not over and was begun before the checkpoint. One that the guest does not hold may have been
    started after it: nobody knows."""
    return effect.id in ledger or terminal_of(effect) is not None


def is_rolled_back(effect: Effect, ledger: Ledger) -> bool:
    """Of one that is over by now and was under way when the checkpoint was made. Of what is `lost` nobody was told that
    the machine holds it."""
    held = ledger.get(effect.id)
    return effect.state != "lost" and not effect.is_forestalled and (held is None or held.exit is None)


def has_ended_since(effect: Effect, checkpoint: Checkpoint) -> bool:
    """By the clock, for a checkpoint of an older version, which does not say what was under way. Its moment is one at
    which all stood still, by the clock of the node that wrote when effects ended."""
    return effect.ended_at is not None and effect.ended_at > checkpoint.created_at


# ── what the journal says ──


async def _over_since(parts: NodeParts, checkpoint: Checkpoint) -> list[Effect]:
    """What was under way when it was made, and is over by now."""
    machine = checkpoint.machine
    if checkpoint.effects_under_way is not None:
        found = [await parts.effects.find(machine, each) for each in checkpoint.effects_under_way]
        return sorted((each for each in found if each is not None and each.is_over), key=lambda each: each.n)
    over: list[Effect] = []
    after = 0
    while after < checkpoint.effects_mark and (page := await parts.effects.list(machine, after=after, limit=_PAGE)):
        over += [each for each in page if each.n <= checkpoint.effects_mark and has_ended_since(each, checkpoint)]
        after = page[-1].n
    return over


async def _begun_since(parts: NodeParts, record: Machine, mark: int) -> list[EffectId]:
    found: list[EffectId] = []
    while page := await parts.effects.list(record.id, after=mark, limit=_PAGE):
        found += [effect.id for effect in page if not effect.is_forestalled]
        mark = page[-1].n
    return found


# ── what the guest is told ──


async def _let_go_of_told(parts: NodeParts, record: Machine, guest: Guest, ledger: Ledger) -> None:
    """End what is under way again though its outcome was told, and have the guest forget all that was. Children that a
    command has left in the background live on, where that command has ended in the checkpoint."""
    told: list[HeldEffect] = []
    for held in ledger.values():
        found = await parts.effects.find(record.id, held.effect)
        if found is not None and found.is_over:
            told.append(held)
    with anyio.move_on_after(_END_WITHIN_S) as within:
        for held in told:
            try:
                if held.exit is None:
                    await _end(guest, held.effect)
                await guest.forget(held.effect)
            except OutliveError as error:  # no reason to have no machine
                _log.warning("machine %s: effect %s is not let go of: %s", record.id, held.effect, error.message)
    if within.cancelled_caught:
        _log.warning("machine %s: not all that was told has ended in it", record.id)


async def _end(guest: Guest, effect: EffectId) -> None:
    async with guest.attach(effect, stdout_from=_NO_OUTPUT, stderr_from=_NO_OUTPUT) as running:
        with suppress(ConflictError):  # it has ended by itself
            await guest.signal(effect, signal.SIGKILL)  # the guest sees to it that the whole group ends
        await running.exit(_END_WITHIN_S)
