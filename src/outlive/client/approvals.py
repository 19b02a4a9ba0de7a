"""Approvals over the API, async and sync."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outlive.base import NotFoundError, is_id
from outlive.client.loop import Loop
from outlive.client.transport import Transport
from outlive.client.wire import garbled, items_of

LIST_LIMIT = 100
LIST_PAGE = 100
_NEEDED = ("id", "state", "conversation", "question", "expires_at")


@dataclass(frozen=True, slots=True)
class ApprovalFacts:
    """An approval, as the server showed it. `state`: pending, approved, denied or expired."""

    id: str
    state: str
    conversation: str
    turn: str | None
    question: str
    proposal: str | None
    tool: str | None
    arguments: Mapping[str, Any] | None
    effect: str | None
    digest: str | None
    requested_at: str | None
    expires_at: str
    decided_by: str | None
    decided_at: str | None
    comment: str | None
    budget: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


_OPTIONAL = tuple(name for name in ApprovalFacts.__slots__ if name not in _NEEDED)


def approval_of(raw: Mapping[str, Any]) -> ApprovalFacts:
    try:
        optional = {name: raw.get(name) for name in _OPTIONAL}
        return ApprovalFacts(**{name: raw[name] for name in _NEEDED}, **optional)  # type: ignore[arg-type]
    except (KeyError, TypeError):
        raise garbled() from None


Found = list[ApprovalFacts]  # `list` is also a method here


class AsyncApprovals:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, *, state: str | None = None, limit: int | None = LIST_LIMIT) -> Found:
        """Newest first. `state`: only those in it. `limit=None`: all there are."""
        found: Found = []
        params: dict[str, str] = {"state": state} if state is not None else {}
        while limit is None or len(found) < limit:
            size = LIST_PAGE if limit is None else min(LIST_PAGE, limit - len(found))
            answer = await self._transport.call("GET", "/approvals", params={**params, "limit": size})
            found.extend(approval_of(item) for item in items_of(answer))
            if not isinstance(following := answer.get("next"), str):
                break
            params["cursor"] = following
        return found

    async def get(self, id: str) -> ApprovalFacts:
        return approval_of(await self._transport.call("GET", f"/approvals/{_checked(id)}"))

    async def approve(self, id: str, comment: str | None = None, *, amount: float | None = None) -> ApprovalFacts:
        """Yes. To a question of the agent's own, the comment is the answer. `amount`: by how much the budget is raised
        that this is about; without, by what was asked for."""
        return await self._decide(id, "approve", comment, {"amount": amount} if amount is not None else {})

    async def deny(self, id: str, comment: str | None = None) -> ApprovalFacts:
        """No; the agent is told the comment."""
        return await self._decide(id, "deny", comment)

    async def _decide(
        self, id: str, decision: str, comment: str | None, more: Mapping[str, Any] | None = None
    ) -> ApprovalFacts:
        body = {"decision": decision, **({"comment": comment} if comment is not None else {}), **(more or {})}
        return approval_of(await self._transport.call("POST", f"/approvals/{_checked(id)}", body))


class Approvals:
    """The same without `async`."""

    def __init__(self, loop: Loop, twin: AsyncApprovals) -> None:
        self._loop = loop
        self._twin = twin

    def list(self, *, state: str | None = None, limit: int | None = LIST_LIMIT) -> Found:
        """Newest first. `state`: only those in it. `limit=None`: all there are."""
        return self._loop.run(self._twin.list, state=state, limit=limit)

    def get(self, id: str) -> ApprovalFacts:
        return self._loop.run(self._twin.get, id)

    def approve(self, id: str, comment: str | None = None, *, amount: float | None = None) -> ApprovalFacts:
        """Yes. To a question of the agent's own, the comment is the answer. `amount`: by how much the budget is raised
        that this is about; without, by what was asked for."""
        return self._loop.run(self._twin.approve, id, comment, amount=amount)

    def deny(self, id: str, comment: str | None = None) -> ApprovalFacts:
        """No; the agent is told the comment."""
        return self._loop.run(self._twin.deny, id, comment)


def _checked(id: str) -> str:
    # It becomes part of a path: what is no id never leaves the client.
    if not is_id(id, "appr"):
        raise NotFoundError("approval.not_found", f"There is no approval {id!r}: ids look like `appr_...`.")
    return id
