"""Who may do what, and the short memory in front of the principals: bounded, and never of what was not found."""

from collections.abc import Sequence

import anyio
import pytest

from outlive.base import DeniedError, PrincipalId, UnauthenticatedError
from outlive.governance import ALL_RIGHTS, CachedPrincipals, Principal, PrincipalKind, Right, Rights, rights_of
from outlive.governance.identity import (
    _REMEMBERED,
    _REMEMBERED_S,
    KINDS_OF_PRINCIPALS,
    TOKEN_LIMIT,
    check_admin,
    check_may_approve,
    check_may_create,
    hash_token,
    unknown_principal,
    unknown_token,
    whole_rights,
)
from outlive.testing.idempotency import HeldClock

pytestmark = pytest.mark.anyio


class Book:
    """Principals in a dict, and how often they were looked up."""

    def __init__(self, *tokens: str) -> None:
        self.known = {token: Principal(PrincipalId(f"prin_{token}"), token, "person") for token in tokens}
        self.asked = 0
        self.slow = anyio.Event()
        self.slow.set()

    async def authenticate(self, token: str) -> Principal:
        self.asked += 1
        if token not in self.known:
            raise unknown_token()
        found = self.known[token]
        await self.slow.wait()
        return found

    async def create(self, id: PrincipalId, *, name: str, kind: PrincipalKind, rights: Rights, token: str) -> Principal:
        self.known[token] = Principal(id, name, kind, rights)
        return self.known[token]

    async def get(self, id: PrincipalId) -> Principal:
        for principal in self.known.values():
            if principal.id == id:
                return principal
        raise unknown_principal(id)

    async def find(self, name: str) -> Principal:
        for principal in self.known.values():
            if principal.name == name:
                return principal
        raise unknown_principal(name)

    async def list(self, *, limit: int, before: PrincipalId | None = None) -> Sequence[Principal]:
        return tuple(self.known.values())[:limit]

    async def delete(self, id: PrincipalId) -> Principal:
        found = await self.get(id)
        del self.known[found.name]
        return found

    async def ensure_owner(self, token: str) -> Principal:
        self.known = {token: Principal(PrincipalId("prin_owner"), "owner", "person")}
        return self.known[token]


async def test_a_busy_client_is_looked_up_once_in_a_while() -> None:
    book, clock = Book("a"), HeldClock()
    cached = CachedPrincipals(book, clock)
    for _ in range(3):
        assert await cached.authenticate("a") == book.known["a"]
    assert book.asked == 1
    clock.pass_time(_REMEMBERED_S)
    await cached.authenticate("a")
    assert book.asked == 2


async def test_a_revoked_token_works_a_few_seconds_at_most() -> None:
    book, clock = Book("a"), HeldClock()
    cached = CachedPrincipals(book, clock)
    await cached.authenticate("a")
    del book.known["a"]
    clock.pass_time(_REMEMBERED_S)
    for _ in range(2):
        with pytest.raises(UnauthenticatedError):
            await cached.authenticate("a")
    assert book.asked == 3  # a refusal is not remembered


async def test_a_new_token_of_the_owner_holds_at_once() -> None:
    cached = CachedPrincipals(Book("a"), HeldClock())
    await cached.authenticate("a")
    await cached.ensure_owner("b")
    with pytest.raises(UnauthenticatedError):
        await cached.authenticate("a")


async def test_a_token_that_is_revoked_here_holds_no_longer_and_others_are_still_remembered() -> None:
    book = Book("a", "b")
    cached = CachedPrincipals(book, HeldClock())
    for token in ("a", "b"):
        await cached.authenticate(token)
    await cached.delete(PrincipalId("prin_a"))
    with pytest.raises(UnauthenticatedError):
        await cached.authenticate("a")
    asked = book.asked
    assert (await cached.authenticate("b")).name == "b"
    assert book.asked == asked


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_remembered() -> None:
    book = Book("a")
    book.slow = anyio.Event()
    cached = CachedPrincipals(book, HeldClock())
    async with anyio.create_task_group() as group:
        group.start_soon(cached.authenticate, "a")
        await anyio.wait_all_tasks_blocked()
        await cached.delete(PrincipalId("prin_a"))
        book.slow.set()
    with pytest.raises(UnauthenticatedError):
        await cached.authenticate("a")


async def test_what_is_remembered_is_bounded() -> None:
    book = Book(*(str(number) for number in range(_REMEMBERED + 10)))
    cached = CachedPrincipals(book, HeldClock())
    for token in book.known:
        await cached.authenticate(token)
    assert len(cached._remembered) == _REMEMBERED
    assert not any(isinstance(key, str) for key in cached._remembered)


async def test_a_token_beyond_all_bounds_is_not_even_looked_up() -> None:
    book = Book("a")
    with pytest.raises(UnauthenticatedError):
        await CachedPrincipals(book, HeldClock()).authenticate("x" * (TOKEN_LIMIT + 1))
    assert book.asked == 0


def test_a_hash_says_nothing_of_its_token() -> None:
    assert len(hash_token("a")) == 32
    assert hash_token("a") != hash_token("b")
    assert hash_token("\ud800")  # whatever a header held


def principal(kind: PrincipalKind, *rights: Right) -> Principal:
    return Principal(PrincipalId("prin_x"), "x", kind, frozenset(rights))


def test_every_kind_may_look_and_type_and_only_a_person_may_take() -> None:
    assert {kind: rights_of(kind) for kind in KINDS_OF_PRINCIPALS} == {
        "person": {"observe", "type", "take"},
        "agent": {"observe", "type"},
        "device": {"observe", "type"},
        "service": {"observe", "type"},
    }


def test_a_right_brings_those_it_makes_no_sense_without() -> None:
    assert whole_rights(["observe"]) == {"observe"}
    assert whole_rights(["type"]) == {"observe", "type"}
    assert whole_rights(["take"]) == {"observe", "type", "take"}
    assert whole_rights(["admin"]) == {"observe", "type", "admin"}
    assert whole_rights(["approve"]) == {"observe", "type", "approve"}
    assert whole_rights(["take", "admin", "approve"]) == ALL_RIGHTS


def test_who_was_given_no_rights_has_none() -> None:
    assert principal("person").rights == frozenset()
    with pytest.raises(DeniedError):
        check_admin(principal("person"))


def test_nobody_gives_a_right_that_they_do_not_have() -> None:
    admin = principal("service", "observe", "type", "admin")
    check_may_create(admin, "service", rights_of("service"))
    with pytest.raises(DeniedError) as refused:
        check_may_create(admin, "person", rights_of("person"))
    assert (refused.value.code, refused.value.facts) == ("principal.rights", {"right": "take"})


def test_an_agent_cannot_make_itself_a_person() -> None:
    agent = Principal(PrincipalId("prin_x"), "x", "agent", ALL_RIGHTS)
    check_may_create(agent, "agent", ALL_RIGHTS)
    for kind in KINDS_OF_PRINCIPALS:
        if kind != "agent":
            with pytest.raises(DeniedError):
                check_may_create(agent, kind, frozenset({"observe"}))


def test_without_admin_nobody_is_made() -> None:
    with pytest.raises(DeniedError) as refused:
        check_may_create(principal("person", "observe", "type", "take"), "agent", frozenset({"observe"}))
    assert refused.value.code == "principal.denied"


@pytest.mark.parametrize(
    ("kind", "rights", "may"),
    [
        ("person", ["type"], True),
        ("agent", ["type"], False),
        ("agent", ["approve", "admin"], False),
        ("service", ["type", "admin"], False),
        ("service", ["approve"], True),
        ("device", ["approve"], True),
    ],
)
def test_persons_approve_and_who_was_given_the_right_and_no_agent(
    kind: PrincipalKind, rights: list[Right], may: bool
) -> None:
    asking = Principal(PrincipalId("prin_1"), "name", kind, whole_rights(rights))
    if may:
        check_may_approve(asking)
    else:
        with pytest.raises(DeniedError):
            check_may_approve(asking)
