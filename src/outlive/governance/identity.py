"""Who is asking: principals, and the tokens they show. The port, and a short memory in front of it.

Rule 1: a token is kept only as its SHA-256; nobody can read one back, and it never enters a log or an error.
Rule 2: everything that is done is done in the name of a principal; there is no anonymous one.
"""

import hashlib
from collections import OrderedDict
from typing import Literal, NamedTuple, Protocol

from outlive.base import Clock, PrincipalId, UnauthenticatedError

PrincipalKind = Literal["person", "agent", "device", "service"]

TOKEN_LIMIT = 512  # characters; a longer one is nobody's
OWNER_NAME = "owner"
_REMEMBERED = 1_024
_REMEMBERED_S = 5.0


class Principal(NamedTuple):
    id: PrincipalId
    name: str
    kind: PrincipalKind


class Principals(Protocol):
    async def authenticate(self, token: str) -> Principal:
        """Whose token this is; `unauthenticated` if nobody's."""
        ...

    async def ensure_owner(self, token: str) -> Principal:
        """The first principal of the house, a person, made if there is none. From now on `token` is the owner's token
        and older ones are not: a token file that was lost lets nobody in."""
        ...


def hash_token(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def unknown_token() -> UnauthenticatedError:
    return UnauthenticatedError(
        "token.unknown", "This token is not known here: take the one from endpoint.json, or ask for a new one."
    )


class CachedPrincipals:
    """Remembers for a few seconds who a token belongs to, so that a busy client costs no query per request.

    Only what was found is remembered: guesses cannot push anybody out. A revoked token works a few seconds longer.
    """

    def __init__(self, principals: Principals, clock: Clock) -> None:
        self._principals = principals
        self._clock = clock
        self._remembered: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

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
        principal = await self._principals.authenticate(token)
        self._remembered[key] = (principal, now + _REMEMBERED_S)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        return principal

    async def ensure_owner(self, token: str) -> Principal:
        self._remembered.clear()
        return await self._principals.ensure_owner(token)
