"""Who may type into a terminal: the lease, and every way it goes from one to another. Pure.

Each function takes the lease as it is and returns it as it shall be, or refuses by raising; run inside the transaction
that changes the record, so two who want it at once get it one after the other.

Invariant: nobody but the holder types. A lease that another holds changes hands only by the holder's will (`yield`,
`grant`), by the right to take, or because the holder is gone; an agent never takes from anybody but an agent.
"""

from datetime import datetime
from typing import Any, Literal

from outlive.base import ConflictError, DeniedError, OutliveError
from outlive.governance.identity import Right
from outlive.machine.terminal.status import Lease, LeaseHow, Operator, Terminal

LEASE_GRACE_S = 60.0  # how long a holder may be away and silent


def decide_attach(
    lease: Lease | None,
    operator: Operator,
    *,
    mode: Literal["observe", "type"],
    now: datetime,
    offset: int,
    is_return: bool = False,
) -> Lease | None:
    """A free lease goes to whoever comes to type, not to one who was cut off and comes back: it may just have yielded.
    One that another holds stays there: attached all the same."""
    _check_right(operator, mode)
    if mode == "observe" or is_return or lease is not None:
        return lease
    return _given(operator, "attach", now, offset)


def decide_input(
    lease: Lease | None, operator: Operator, *, now: datetime, offset: int, how: Literal["input", "run"] = "input"
) -> Lease:
    """Typing takes a free lease. `terminal.leased` (conflict) if another holds it."""
    check_may_type(lease, operator)
    return lease or _given(operator, how, now, offset)


def decide_take(lease: Lease | None, operator: Operator, *, now: datetime, offset: int) -> Lease:
    """Without the holder's consent. `terminal.take_denied` (denied) if another holds it and may keep it."""
    _check_right(operator, "type")
    if lease is not None and lease.operator == operator.id:
        return lease
    _check_may_take(lease, operator)
    return _given(operator, "take", now, offset, is_forced=True)


def decide_yield(lease: Lease | None, operator: Operator) -> None:
    """Nobody holds it from now on. `terminal.not_holder` (conflict) if another does."""
    if lease is not None and lease.operator != operator.id:
        raise ConflictError(
            "terminal.not_holder", f"Only {lease.name!r}, who holds this terminal, can yield it.", **lease_facts(lease)
        )


def decide_grant(lease: Lease | None, operator: Operator, to: Operator, *, now: datetime, offset: int) -> Lease:
    """The holder hands it on, or somebody who could take it does."""
    _check_right(operator, "type")
    if lease is None or lease.operator != operator.id:
        _check_may_take(lease, operator)
    _check_right(to, "type")
    if lease is not None and lease.operator == to.id:
        return lease
    is_handed_on = lease is not None and lease.operator == operator.id
    return _given(to, "grant", now, offset, is_forced=not is_handed_on)


def decide_expiry(
    lease: Lease | None, *, is_attached: bool, idle_s: float, grace_s: float = LEASE_GRACE_S
) -> Lease | None:
    """Freed when its holder has no attachment in mode `type` and did nothing for so long. A node that has just been
    started counts from there: it does not know what was before."""
    return lease if is_attached or idle_s < grace_s else None


# ── what needs the lease and does not change it ──


def check_may_type(lease: Lease | None, operator: Operator) -> None:
    """Also for a signal: Ctrl-C by another way. It takes no lease, and goes past nobody's."""
    _check_right(operator, "type")
    if lease is not None and lease.operator != operator.id:
        may_take = _why_not_to_take(lease, operator) is None
        raise _leased(lease, f"wait until it is free{', or take it' if may_take else ''}.")


def may_resize(lease: Lease | None, operator: Operator) -> bool:
    """The holder's size rules. While nobody holds it, anybody's who may type."""
    return "type" in operator.rights if lease is None else lease.operator == operator.id


def check_may_close(terminal: Terminal, operator: Operator) -> None:
    """Whoever could take it: closing ends what the holder does. Its owner may always, but for an agent whose terminal
    somebody else than an agent holds: nobody is cut off by an agent."""
    if operator.id == terminal.owner:
        held = terminal.lease
        if held is not None and held.operator != operator.id and operator.kind == "agent" and held.kind != "agent":
            raise _leased(held, "it can be closed when it is free.")
        return
    _check_right(operator, "type")
    if terminal.lease is None or terminal.lease.operator != operator.id:
        _check_may_take(terminal.lease, operator)


def check_open(terminal: Terminal) -> None:
    if not terminal.is_open:
        raise ConflictError(
            "terminal.ended", f"Terminal {terminal.id!r} is {terminal.state}; open another.", state=terminal.state
        )


def lease_facts(lease: Lease) -> dict[str, Any]:
    """The lease as facts of an error."""
    return {
        "operator": lease.operator,
        "operator_name": lease.name,
        "operator_kind": lease.kind,
        "since": lease.since.isoformat(),
        "offset": lease.offset,
    }


def _check_right(operator: Operator, right: Right) -> None:
    if right not in operator.rights:
        raise DeniedError("terminal.denied", f"{operator.name!r} has no right to {right} in terminals.", right=right)


def _check_may_take(lease: Lease | None, operator: Operator) -> None:
    if lease is not None and (why := _why_not_to_take(lease, operator)) is not None:
        raise _take_denied(lease, why)


def _why_not_to_take(lease: Lease, operator: Operator) -> str | None:
    if "take" not in operator.rights:
        return f"{operator.name!r} has no right to take it."
    if operator.kind == "agent" and lease.kind != "agent":
        return "An agent takes only from an agent."
    return None


def _leased(lease: Lease, advice: str) -> OutliveError:
    return ConflictError("terminal.leased", f"{lease.name!r} holds this terminal: {advice}", **lease_facts(lease))


def _take_denied(lease: Lease, why: str) -> OutliveError:
    message = f"{lease.name!r} holds this terminal: ask for it, or wait. {why}"
    return DeniedError("terminal.take_denied", message, **lease_facts(lease))


def _given(operator: Operator, how: LeaseHow, now: datetime, offset: int, *, is_forced: bool = False) -> Lease:
    return Lease(
        operator=operator.id,
        name=operator.name,
        kind=operator.kind,
        since=now,
        how=how,
        offset=offset,
        is_forced=is_forced,
    )
