"""Who may type: every operator, every holder, every verb. Nobody passes another's lease without the right to take."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from outlive.base import OutliveError, PrincipalId, new_machine_id, new_terminal_id
from outlive.governance.identity import KINDS_OF_PRINCIPALS, PrincipalKind, Right
from outlive.machine.terminal import lease as leases
from outlive.machine.terminal.lease import LEASE_GRACE_S
from outlive.machine.terminal.status import Lease, Operator, Terminal

SINCE = datetime(2030, 1, 2, tzinfo=UTC)
NOW = SINCE + timedelta(minutes=5)
ME, OTHER, THIRD = PrincipalId("prin_me"), PrincipalId("prin_other"), PrincipalId("prin_third")

RIGHTS: dict[str, frozenset[Right]] = {
    "nothing": frozenset(),
    "observe": frozenset({"observe"}),
    "type": frozenset({"observe", "type"}),
    "take": frozenset({"observe", "type", "take"}),
    "admin": frozenset({"observe", "type", "admin"}),  # makes principals; not a right in terminals
}
HOLDERS = ("free", "me", "person", "agent", "device", "service")
OTHERS = HOLDERS[2:]


def a_lease(operator: PrincipalId, kind: PrincipalKind) -> Lease:
    return Lease(operator=operator, name=kind, kind=kind, since=SINCE, how="attach", offset=3)


def held_by(holder: str, me: Operator) -> Lease | None:
    if holder == "free":
        return None
    if holder == "me":
        return a_lease(ME, me.kind)
    return a_lease(OTHER, holder)  # type: ignore[arg-type]


def given_to(operator: PrincipalId, kind: PrincipalKind, how: str, *, is_forced: bool = False) -> Lease:
    facts = {"operator": operator, "name": f"{kind}!", "kind": kind, "since": NOW, "how": how, "offset": 99}
    return Lease.model_validate({**facts, "is_forced": is_forced})


def an_operator(kind: PrincipalKind, rights: str, id: PrincipalId = ME) -> Operator:
    return Operator(id=id, name=f"{kind}!", kind=kind, rights=RIGHTS[rights])


def attach(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_attach(lease, me, mode="type", now=NOW, offset=99)


def come_back(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_attach(lease, me, mode="type", now=NOW, offset=99, is_return=True)


def observe(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_attach(lease, me, mode="observe", now=NOW, offset=99)


def type_(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_input(lease, me, now=NOW, offset=99)


def take(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_take(lease, me, now=NOW, offset=99)


def yield_(lease: Lease | None, me: Operator) -> Lease | None:
    leases.decide_yield(lease, me)
    return None


def grant(lease: Lease | None, me: Operator) -> Lease | None:
    return leases.decide_grant(lease, me, an_operator("device", "type", THIRD), now=NOW, offset=99)


def signal(lease: Lease | None, me: Operator) -> Lease | None:
    leases.check_may_type(lease, me)
    return lease


def close(lease: Lease | None, me: Operator) -> Lease | None:
    leases.check_may_close(a_terminal(lease), me)
    return lease


def a_terminal(lease: Lease | None, owner: PrincipalId = THIRD) -> Terminal:
    terminal = new_terminal_id()
    return Terminal(
        id=terminal,
        machine=new_machine_id(),
        name=terminal,
        owner=owner,
        lease=lease,
        created_at=SINCE,
        changed_at=SINCE,
    )


Verb = Callable[[Lease | None, Operator], Lease | None]
Row = tuple[str, str, str]  # what comes of it if: nobody holds it, I do, another does

DENIED: Row = ("terminal.denied",) * 3
STAYS: Row = ("stays",) * 3

# For each verb and each set of rights. "mine": the lease is mine from now on; "stays": it is as it was.
TABLE: dict[Verb, dict[str, Row]] = {
    observe: {"nothing": DENIED, "observe": STAYS, "type": STAYS, "take": STAYS, "admin": STAYS},
    attach: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("mine", "stays", "stays"),
        "take": ("mine", "stays", "stays"),
        "admin": ("mine", "stays", "stays"),
    },
    come_back: {"nothing": DENIED, "observe": DENIED, "type": STAYS, "take": STAYS, "admin": STAYS},
    type_: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("mine", "stays", "terminal.leased"),
        "take": ("mine", "stays", "terminal.leased"),
        "admin": ("mine", "stays", "terminal.leased"),
    },
    take: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("mine", "stays", "terminal.take_denied"),
        "take": ("mine", "stays", "mine"),
        "admin": ("mine", "stays", "terminal.take_denied"),
    },
    yield_: dict.fromkeys(RIGHTS, ("nobody's", "nobody's", "terminal.not_holder")),
    grant: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("theirs", "theirs", "terminal.take_denied"),
        "take": ("theirs", "theirs", "theirs"),
        "admin": ("theirs", "theirs", "terminal.take_denied"),
    },
    signal: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("stays", "stays", "terminal.leased"),
        "take": ("stays", "stays", "terminal.leased"),
        "admin": ("stays", "stays", "terminal.leased"),
    },
    close: {
        "nothing": DENIED,
        "observe": DENIED,
        "type": ("stays", "stays", "terminal.take_denied"),
        "take": STAYS,
        "admin": ("stays", "stays", "terminal.take_denied"),
    },
}
HOW: dict[Verb, str] = {attach: "attach", type_: "input", take: "take"}
WITHOUT_CONSENT = (take, grant, close)


def expected_of(verb: Verb, kind: PrincipalKind, rights: str, holder: str) -> str:
    if verb in WITHOUT_CONSENT and kind == "agent" and rights == "take" and holder in ("person", "device", "service"):
        return "terminal.take_denied"  # an agent takes from agents only
    free, mine, another = TABLE[verb][rights]
    return {"free": free, "me": mine}.get(holder, another)


@pytest.mark.parametrize("verb", TABLE, ids=lambda verb: verb.__name__.rstrip("_"))
def test_every_operator_gets_what_the_table_says(verb: Verb) -> None:
    for kind, rights, holder in product(KINDS_OF_PRINCIPALS, RIGHTS, HOLDERS):
        me = an_operator(kind, rights)
        lease = held_by(holder, me)
        outcomes: dict[str, Lease | None] = {"stays": lease, "nobody's": None}
        outcomes["mine"] = given_to(ME, kind, HOW.get(verb, "take"), is_forced=verb is take)
        outcomes["theirs"] = given_to(THIRD, "device", "grant", is_forced=holder != "me")
        expected = expected_of(verb, kind, rights, holder)
        case = (kind, rights, holder)
        if expected in outcomes:
            assert verb(lease, me) == outcomes[expected], case
        else:
            with pytest.raises(OutliveError) as refused:
                verb(lease, me)
            assert refused.value.code == expected, case


@pytest.mark.parametrize(
    ("code", "kind"),
    [("terminal.denied", "denied"), ("terminal.take_denied", "denied"), ("terminal.leased", "conflict")],
)
def test_a_refusal_is_of_the_kind_that_its_code_promises(code: str, kind: str) -> None:
    seen: set[str] = set()
    for verb, rights, holder in product(TABLE, RIGHTS, HOLDERS):
        try:
            verb(held_by(holder, an_operator("service", rights)), an_operator("service", rights))
        except OutliveError as error:
            if error.code == code:
                seen.add(error.kind)
    assert seen == {kind}


@pytest.mark.parametrize("verb", [type_, take, yield_], ids=["type", "take", "yield"])
def test_whoever_is_refused_hears_who_holds_it(verb: Verb) -> None:
    with pytest.raises(OutliveError) as refused:
        verb(a_lease(OTHER, "person"), an_operator("agent", "type"))
    facts = refused.value.facts
    assert (facts["operator"], facts["operator_kind"], facts["offset"]) == (OTHER, "person", 3)
    assert facts["since"] == SINCE.isoformat()


def test_the_size_is_the_holders_or_anybodys_who_may_type_while_nobody_holds_it() -> None:
    for kind, rights, holder in product(KINDS_OF_PRINCIPALS, RIGHTS, HOLDERS):
        me = an_operator(kind, rights)
        expected = holder == "me" or (holder == "free" and rights in ("type", "take", "admin"))
        assert leases.may_resize(held_by(holder, me), me) == expected, (kind, rights, holder)


def test_a_lease_is_granted_only_to_those_who_may_type() -> None:
    holder = an_operator("person", "take")
    with pytest.raises(OutliveError) as refused:
        leases.decide_grant(a_lease(ME, "person"), holder, an_operator("agent", "observe", THIRD), now=NOW, offset=99)
    assert refused.value.code == "terminal.denied"
    already = a_lease(THIRD, "agent")
    assert leases.decide_grant(already, holder, an_operator("agent", "type", THIRD), now=NOW, offset=99) == already


def test_its_owner_closes_a_terminal_whoever_holds_it() -> None:
    for holder in OTHERS:
        owner = an_operator("person", "observe")
        leases.check_may_close(a_terminal(held_by(holder, owner), owner=ME), owner)


def test_an_agent_closes_its_own_terminal_unless_a_person_a_device_or_a_service_holds_it() -> None:
    owner = an_operator("agent", "take")
    for holder in ("free", "me", "agent"):
        leases.check_may_close(a_terminal(held_by(holder, owner), owner=ME), owner)
    for holder in ("person", "device", "service"):
        with pytest.raises(OutliveError) as refused:
            leases.check_may_close(a_terminal(held_by(holder, owner), owner=ME), owner)
        assert (refused.value.code, refused.value.facts["operator"]) == ("terminal.leased", OTHER)


def test_only_one_who_may_take_it_is_told_to() -> None:
    held = a_lease(OTHER, "person")
    with pytest.raises(OutliveError, match=r"wait until it is free, or take it\.$"):
        type_(held, an_operator("person", "take"))
    for who in (an_operator("agent", "take"), an_operator("person", "type")):
        with pytest.raises(OutliveError, match=r"wait until it is free\.$"):
            type_(held, who)


def test_a_lease_ends_when_its_holder_is_away_and_silent_for_the_grace() -> None:
    lease = a_lease(ME, "agent")
    assert leases.decide_expiry(lease, is_attached=False, idle_s=LEASE_GRACE_S - 0.01) == lease
    assert leases.decide_expiry(lease, is_attached=False, idle_s=LEASE_GRACE_S) is None
    assert leases.decide_expiry(lease, is_attached=True, idle_s=LEASE_GRACE_S * 100) == lease
    assert leases.decide_expiry(lease, is_attached=False, idle_s=2, grace_s=1) is None
    assert leases.decide_expiry(None, is_attached=False, idle_s=0) is None


def test_only_an_open_terminal_is_operated() -> None:
    terminal = a_terminal(None)
    leases.check_open(terminal)
    for state in ("exited", "closed", "lost"):
        with pytest.raises(OutliveError) as refused:
            leases.check_open(terminal.model_copy(update={"state": state}))
        assert refused.value.code == "terminal.ended"
