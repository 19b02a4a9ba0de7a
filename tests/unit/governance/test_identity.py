"""The short memory in front of the principals: bounded, short, and never of what was not found."""

import pytest

from outlive.base import PrincipalId, UnauthenticatedError
from outlive.governance import CachedPrincipals, Principal
from outlive.governance.identity import _REMEMBERED, _REMEMBERED_S, TOKEN_LIMIT, hash_token, unknown_token
from outlive.testing.idempotency import HeldClock

pytestmark = pytest.mark.anyio


class Book:
    """Principals in a dict, and how often they were looked up."""

    def __init__(self, *tokens: str) -> None:
        self.known = {token: Principal(PrincipalId(f"prin_{token}"), token, "person") for token in tokens}
        self.asked = 0

    async def authenticate(self, token: str) -> Principal:
        self.asked += 1
        if token not in self.known:
            raise unknown_token()
        return self.known[token]

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
