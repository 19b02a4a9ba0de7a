"""Who is asking: principals, the tokens they show, and the rights they have. The port, and a short memory in front.

Rule 1: a token is kept only as its SHA-256; nobody can read one back, and it never enters a log or an error.
Rule 2: everything that is done is done in the name of a principal; there is no anonymous one.
Rule 3: a principal that was deleted stays known by its id, so that what it did keeps its name. Its tokens are nobody's.
"""

import hashlib
import secrets
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from outlive.base import (
    BrokenError,
    Clock,
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    PrincipalId,
    UnauthenticatedError,
    is_id,
)

PrincipalKind = Literal["person", "agent", "device", "service"]
Right = Literal["observe", "type", "take", "admin", "approve"]
Rights = frozenset[Right]

KINDS_OF_PRINCIPALS: tuple[PrincipalKind, ...] = get_args(PrincipalKind)
RIGHTS: tuple[Right, ...] = get_args(Right)
ALL_RIGHTS: Rights = frozenset(RIGHTS)
TOKEN_LIMIT = 512  # characters; a longer one is nobody's
NAME_LIMIT = 64
OWNER_NAME = "owner"
_TOKEN_BYTES = 32
_REMEMBERED = 1_024
_REMEMBERED_S = 5.0

_BY_KIND: dict[PrincipalKind, Rights] = {
    "person": frozenset({"observe", "type", "take"}),
    "agent": frozenset({"observe", "type"}),
    "device": frozenset({"observe", "type"}),
    "service": frozenset({"observe", "type"}),
}
# Whoever may act may look; whoever takes the lease or makes principals acts.
_IMPLIED: dict[Right, Rights] = {
    "observe": frozenset(),
    "type": frozenset({"observe"}),
    "take": frozenset({"observe", "type"}),
    "admin": frozenset({"observe", "type"}),
    "approve": frozenset({"observe", "type"}),
}


class Principal(NamedTuple):
    id: PrincipalId
    name: str
    kind: PrincipalKind
    rights: Rights = frozenset()
    created_at: str = ""
    is_owner: bool = False
    deleted_at: str | None = None


class Principals(Protocol):
    async def authenticate(self, token: str) -> Principal:
        """Whose token this is; `unauthenticated` if nobody's."""
        ...

    async def ensure_owner(self, token: str) -> Principal:
        """The first principal of the house, a person, made if there is none. From now on `token` is the owner's token
        and older ones are not: a token file that was lost lets nobody in."""
        ...

    async def create(self, id: PrincipalId, *, name: str, kind: PrincipalKind, rights: Rights, token: str) -> Principal:
        """Make a principal that `token` belongs to. Idempotent by id: the one that is there gets this token too.
        `conflict`: `principal.name_taken` by a living one, or `principal.deleted` meanwhile."""
        ...

    async def get(self, id: PrincipalId) -> Principal:
        """The principal of this id, deleted ones too; `not_found` if there never was one."""
        ...

    async def find(self, name: str) -> Principal:
        """The living principal of this name, however its letters are cased; `not_found` if there is none."""
        ...

    async def list(self, *, limit: int, before: PrincipalId | None = None) -> Sequence[Principal]:
        """Living ones, newest first; those older than `before`."""
        ...

    async def delete(self, id: PrincipalId) -> Principal:
        """Its tokens are nobody's from now on, and its name is free. Again: nothing happens. Never the owner."""
        ...


# ── decisions, pure ──


def rights_of(kind: PrincipalKind) -> Rights:
    """What a principal of this kind may do unless said otherwise."""
    return _BY_KIND[kind]


def whole_rights(given: Iterable[Right]) -> Rights:
    """The rights that were given, with those that they make no sense without."""
    asked = frozenset(given)
    return asked.union(*(_IMPLIED[right] for right in asked))


def check_name(name: str) -> str:
    """A name that a principal may have. Pure text on one line: it is shown beside what the principal did."""
    if not 1 <= len(name) <= NAME_LIMIT or not name.isprintable() or name != name.strip():
        raise InvalidError(
            "principal.name", f"A name has 1 to {NAME_LIMIT} printable characters and no space at its ends."
        )
    if is_id(name_key(name), "prin"):
        raise InvalidError("principal.name", "A name does not look like the id of a principal.")
    if name_key(name) == OWNER_NAME:
        raise ConflictError("principal.name_taken", f"The name {OWNER_NAME!r} is the owner's.", name=name)
    return name


def name_key(name: str) -> str:
    """What is unique of a name: who looks the same but for case and width is the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def check_may_create(by: Principal, kind: PrincipalKind, rights: Rights) -> None:
    """Nobody makes somebody who may do more: neither by rights nor, for an agent, by being no agent any more."""
    check_admin(by)
    if by.kind == "agent" and kind != "agent":
        raise DeniedError("principal.denied", "An agent can make agents only: persons answer for the others.")
    missing = [right for right in RIGHTS if right in rights - by.rights]
    if missing:
        raise DeniedError(
            "principal.rights", f"You cannot give a right that you do not have: {', '.join(missing)}.", right=missing[0]
        )


def check_may_delete(by: Principal, principal: Principal) -> None:
    """An agent does not get rid of those who may take its terminals from it."""
    check_admin(by)
    if by.kind == "agent" and principal.kind != "agent":
        raise DeniedError("principal.denied", "An agent can delete agents only: persons answer for the others.")


def check_admin(by: Principal) -> None:
    if "admin" not in by.rights:
        raise DeniedError("principal.denied", "Principals are made, listed and deleted by those with the right admin.")


def check_may_approve(by: Principal) -> None:
    """Persons decide on approvals, and whoever was given the right to; an agent never does, whatever it was given: it
    would approve of itself."""
    if by.kind == "agent" or (by.kind != "person" and "approve" not in by.rights):
        raise DeniedError("approval.not_yours", "Approvals are decided by persons, or by those with the right approve.")


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def unknown_token() -> UnauthenticatedError:
    return UnauthenticatedError(
        "token.unknown", "This token is not known here: take the one from endpoint.json, or ask for a new one."
    )


def unknown_principal(name: str) -> NotFoundError:
    return NotFoundError("principal.unknown", f"There is no principal {name[:NAME_LIMIT]!r}.")


def name_taken(name: str) -> ConflictError:
    return ConflictError(
        "principal.name_taken", f"There is a principal {name!r} already: take another name, or delete it.", name=name
    )


def deleted_meanwhile(principal: Principal) -> ConflictError:
    return ConflictError("principal.deleted", f"The principal {principal.name!r} was deleted; make a new one.")


def token_taken(principal: Principal, held_by: str) -> BrokenError:
    return BrokenError(
        "token.taken", f"The token for {principal.name!r} already belongs to {held_by!r}; make a new one."
    )


def owner_stays() -> ConflictError:
    return ConflictError("principal.owner", "The owner cannot be deleted; a new token in its place shuts out the old.")


class CachedPrincipals:
    """Remembers for a few seconds who a token belongs to, so that a busy client costs no query per request.

    Only what was found is remembered: guesses cannot push anybody out. A token that was revoked through here is
    forgotten at once; one that was revoked elsewhere works a few seconds longer.
    """

    def __init__(self, principals: Principals, clock: Clock) -> None:
        self._principals = principals
        self._clock = clock
        self._remembered: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._revocations = 0

    async def authenticate(self, token: str) -> Principal:
        if len(token) > TOKEN_LIMIT:
            raise unknown_token()
        # The key is a hash, so the time a lookup takes says nothing about any token.
        key = hash_token(token)
        known = self._remembered.get(key)
        now = self._clock.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        self._remembered.pop(key, None)
        revocations = self._revocations
        principal = await self._principals.authenticate(token)
        if revocations != self._revocations:
            return principal  # it may have been read before the token was revoked: not to be remembered
        self._remembered[key] = (principal, now + _REMEMBERED_S)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return principal

    async def ensure_owner(self, token: str) -> Principal:
        try:
            return await self._principals.ensure_owner(token)
        finally:
            self._revocations += 1
            self._remembered.clear()

    async def create(self, id: PrincipalId, *, name: str, kind: PrincipalKind, rights: Rights, token: str) -> Principal:
        return await self._principals.create(id, name=name, kind=kind, rights=rights, token=token)

    async def get(self, id: PrincipalId) -> Principal:
        return await self._principals.get(id)

    async def find(self, name: str) -> Principal:
        return await self._principals.find(name)

    async def list(self, *, limit: int, before: PrincipalId | None = None) -> Sequence[Principal]:
        return await self._principals.list(limit=limit, before=before)

    async def delete(self, id: PrincipalId) -> Principal:
        try:
            return await self._principals.delete(id)
        finally:
            self._forget(id)  # also when nobody knows whether it was done

    def _forget(self, id: PrincipalId) -> None:
        self._revocations += 1
        for key in [key for key, (principal, _) in self._remembered.items() if principal.id == id]:
            del self._remembered[key]
