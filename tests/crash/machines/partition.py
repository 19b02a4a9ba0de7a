"""The accident `partition`: a node is cut off for longer than its lease, while what runs on it leaves signs of life on
its disk. Others have its machines meanwhile, from their last checkpoint.

Rule 1: the last sign of life here comes before the machine is given up here, and so before it comes up elsewhere.
Rule 2: at the moment at which it is up elsewhere nothing runs here.
Rule 3: when the node is back, what is left here runs no command, gives no sign of life, and is destroyed.
Rule 4: a machine of which there is no checkpoint is lost, and says so.
"""

import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from crash.machines.nodes import BEAT, House
from crash.machines.stacks import SETTLED_WITHIN_S, CrashStack, Facts, is_settled
from eventually import eventually_sync

STALE = ("machine.fenced", "node.no_lease")
_GONE_WITHIN_S = 60.0
_SIGN_WITHIN_S = 10.0


class Sign(NamedTuple):
    """A machine that gives signs of life where it runs."""

    machine: str
    generation: int
    is_saved: bool  # while it gave them: they go on wherever it comes up


class Fate(NamedTuple):
    """What became of a machine whose node was cut off."""

    machine: str
    word: str  # elsewhere, lost, resting or deleted
    still_s: float | None = None  # from its last sign of life here to the moment at which it came up elsewhere


def give_sign(stack: CrashStack, house: House, machine: str, *, is_saved: bool) -> Sign | None:
    """This machine gives signs of life from here on, on this node; None if it does not get there: it may have died
    just before, and nobody has noticed yet."""
    seen = stack.look(machine)
    if not is_on(seen, house):
        return None
    effect = f"eff_{uuid.uuid4().hex}"
    begun = stack.exec(machine, effect, f"python3 -c '{BEAT}'", background=True)
    if begun.status != 200 or (is_saved and stack.do(machine, "checkpoint").status != 200):
        return None
    since = time.time()
    try:
        eventually_sync(lambda: (house.beat_of(machine, seen["generation"]) or 0.0) > since, _SIGN_WITHIN_S)
    except AssertionError:
        return None
    return Sign(machine, seen["generation"], is_saved)


def end_signs(stack: CrashStack, machines: Sequence[str]) -> None:
    for machine in machines:
        if stack.look(machine)["state"] == "running":
            stack.exec(machine, f"eff_{uuid.uuid4().hex}", "rm -f beat")


def is_on(seen: Facts, house: House) -> bool:
    return bool(seen["state"] == "running" and seen["node"] == house.id)


def cut_off(stack: CrashStack, house: House, other: House, signs: Sequence[Sign]) -> list[Fate]:
    """Cut the node off until all of its machines are somebody else's, or at rest; then see what it does with what it
    has. Returns when nothing stale is left."""
    stack.trace.say(f"the {house.name} ({house.pid}) is cut off with {[sign.machine for sign in signs]}")
    with house.standing_still():
        fates = [_fate(stack, house, other, sign) for sign in signs]
        last_beats = {sign.machine: house.beat_of(sign.machine, sign.generation) for sign in signs}
    stack.trace.say(f"the {house.name} is back: {fates}")
    for sign, fate in zip(signs, fates, strict=True):
        if fate.word in ("elsewhere", "lost"):
            told = house.told_by(stack, sign.machine, sign.generation)
            assert told in STALE, f"a command for {sign} was told {told} by a node that does not have it any more"
        _check_gone(house, sign, last_beats[sign.machine])
    return fates


def _fate(stack: CrashStack, house: House, other: House, sign: Sign) -> Fate:
    """While the node is cut off."""
    seen = _let_go(stack, house, sign)
    if seen["state"] == "deleted":
        return Fate(sign.machine, "deleted")
    history = stack.history(sign.machine)
    given_up = [_moment(event) for event in history if _is(event, "lost", sign.generation)]
    last_beat = house.beat_of(sign.machine, sign.generation)
    if given_up:
        assert last_beat is not None, f"{sign.machine} gave no sign of life"
        assert last_beat < given_up[0], f"{sign.machine} lived until {last_beat}, and was given up at {given_up[0]}"
    if seen["state"] == "running":
        assert last_beat is not None, f"{sign.machine} gave no sign of life"
        return _fate_elsewhere(house, other, sign, seen, history, last_beat)
    if seen["state"] != "lost" or seen["checkpoint"] is not None:
        return Fate(sign.machine, "resting")
    refused = stack.exec(sign.machine, f"eff_{uuid.uuid4().hex}", "true")
    assert (bool(seen["reason"]), refused.code) == (True, "machine.lost"), (seen, refused)
    return Fate(sign.machine, "lost")


def _fate_elsewhere(
    house: House, other: House, sign: Sign, seen: Facts, history: Sequence[Facts], last_beat: float
) -> Fate:
    assert seen["node"] == other.id, f"{seen} came up on a node that is cut off"
    assert house.is_frozen, f"{sign.machine} is up elsewhere, and the {house.name} is not frozen"
    after = [event for event in history if event["generation"] > sign.generation]
    came_up_at = min(_moment(event) for event in after if event["kind"] == "woken")
    assert last_beat < came_up_at, f"{sign.machine} lived until {last_beat}, and came up elsewhere at {came_up_at}"
    if sign.is_saved and not any(event["kind"] == "rebooted" for event in after):
        eventually_sync(lambda: (other.beat_of(sign.machine, seen["generation"]) or 0.0) > came_up_at, 30.0)
    return Fate(sign.machine, "elsewhere", came_up_at - last_beat)


def _let_go(stack: CrashStack, house: House, sign: Sign) -> Facts:
    """The machine when it is not the node's any more, and nothing is left to be done for it."""
    found: list[Facts] = []

    def is_let_go() -> bool:
        found[:] = [stack.look(sign.machine)]
        return found[0]["state"] == "deleted" or (found[0]["node"] != house.id and is_settled(found[0]))

    eventually_sync(is_let_go, SETTLED_WITHIN_S, every_s=0.05)
    return found[0]


def _check_gone(house: House, sign: Sign, last_beat: float | None) -> None:
    stale = house.sandbox_path(sign.machine, sign.generation)
    beats: set[float | None] = set()

    def is_gone() -> bool:
        beats.add(house.beat_of(sign.machine, sign.generation))
        return not stale.exists()

    eventually_sync(is_gone, _GONE_WITHIN_S)
    assert beats <= {last_beat, None}, f"{sign.machine} lived again when its node did"


def _is(event: Facts, kind: str, generation: int) -> bool:
    return bool(event["kind"] == kind and event["generation"] == generation)


def _moment(event: Facts) -> float:
    return datetime.fromisoformat(event["at"]).astimezone(UTC).timestamp()
