"""Principals over the API, async and sync: who may ask, and with which rights."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.base import NotFoundError, UnavailableError, is_id
from outlive.client.loop import Loop
from outlive.client.transport import Transport
from outlive.client.wire import garbled, items_of

LIST_LIMIT = 50
_PAGE = 200
_TRIES = 3


@dataclass(frozen=True, slots=True)
class PrincipalFacts:
    """A principal as the server showed it. Only what `create` returned has its `token`: keep it, it is told once."""

    id: str
    name: str
    kind: str
    rights: tuple[str, ...]
    is_owner: bool
    created_at: str | None
    deleted_at: str | None
    token: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "token"}
        return shown if self.token is None else {**shown, "token": self.token}


def principal_of(raw: Mapping[str, Any]) -> PrincipalFacts:
    try:
        return PrincipalFacts(
            id=raw["id"],
            name=raw["name"],
            kind=raw["kind"],
            rights=tuple(raw["rights"]),
            is_owner=bool(raw.get("is_owner")),
            created_at=raw.get("created_at"),
            deleted_at=raw.get("deleted_at"),
            token=raw.get("token"),
        )
    except (KeyError, TypeError):
        raise garbled() from None


Found = list[PrincipalFacts]  # `list` is also a method here


class AsyncPrincipals:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, name: str, kind: str, *, rights: Collection[str] | None = None) -> PrincipalFacts:
        """Make a principal; its `token` is told here and never again. Without `rights`: what its kind usually has."""
        body: dict[str, Any] = {"name": name, "kind": kind}
        if rights is not None:
            body["rights"] = list(rights)
        for _ in range(_TRIES):
            made = principal_of(await self._transport.call("POST", "/principals", body))
            if made.token is not None:
                return made
            # The answer with the token was lost on its way and the call was made again: nobody will ever have that
            # token, so this principal is of no use to anybody.
            await self.delete(made.id)
        raise UnavailableError("principal.token_lost", "The token was lost on its way, again and again. Try later.")

    async def me(self) -> PrincipalFacts:
        """Who this client is to the server."""
        return principal_of(await self._transport.call("GET", "/principals/me"))

    async def get(self, id_or_name: str) -> PrincipalFacts:
        """By id, also one that was deleted; by name only the living."""
        if is_id(id_or_name, "prin"):
            return principal_of(await self._transport.call("GET", f"/principals/{id_or_name}"))
        # Not as part of a path: a name may hold anything.
        found = items_of(await self._transport.call("GET", "/principals", params={"name": id_or_name}))
        if not found:
            raise NotFoundError("principal.unknown", f"There is no principal {id_or_name!r}.")
        return principal_of(found[0])

    async def list(self, *, limit: int | None = LIST_LIMIT) -> Found:
        """The living, newest first. `limit=None`: all there are."""
        found: Found = []
        cursor: dict[str, str] = {}
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            answer = await self._transport.call("GET", "/principals", params={"limit": size, **cursor})
            found.extend(principal_of(item) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                break
            cursor = {"cursor": following}
        return found

    async def delete(self, id_or_name: str) -> None:
        """Its token is nobody's from now on."""
        id = id_or_name if is_id(id_or_name, "prin") else (await self.get(id_or_name)).id
        await self._transport.call("DELETE", f"/principals/{id}")


class Principals:
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncPrincipals) -> None:
        self._loop = loop
        self._twin = twin

    def create(self, name: str, kind: str, *, rights: Collection[str] | None = None) -> PrincipalFacts:
        """Make a principal; its `token` is told here and never again. Without `rights`: what its kind usually has."""
        return self._loop.run(self._twin.create, name, kind, rights=rights)

    def me(self) -> PrincipalFacts:
        """Who this client is to the server."""
        return self._loop.run(self._twin.me)

    def get(self, id_or_name: str) -> PrincipalFacts:
        """By id, also one that was deleted; by name only the living."""
        return self._loop.run(self._twin.get, id_or_name)

    def list(self, *, limit: int | None = LIST_LIMIT) -> Found:
        """The living, newest first. `limit=None`: all there are."""
        return self._loop.run(self._twin.list, limit=limit)

    def delete(self, id_or_name: str) -> None:
        """Its token is nobody's from now on."""
        self._loop.run(self._twin.delete, id_or_name)
