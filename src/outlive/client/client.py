"""The async client: the door to everything the API offers."""

from functools import partial
from types import TracebackType
from typing import Self

from outlive.client.agents import AsyncAgents
from outlive.client.approvals import AsyncApprovals
from outlive.client.blobs import AsyncBlobs
from outlive.client.conversations import AsyncConversations
from outlive.client.endpoint import find_endpoint
from outlive.client.environments import AsyncEnvironments
from outlive.client.machines import AsyncMachines
from outlive.client.principals import AsyncPrincipals
from outlive.client.terminals import AsyncTerminals
from outlive.client.transport import DEADLINE_S, PATIENCE_S, Transport


class AsyncClient:
    """Speaks to the API at `url` with `token`; without them to the stack of `$OUTLIVE_URL` or `$OUTLIVE_HOME`.

    `deadline_s` bounds each call with all its attempts, `patience_s` how long an API that is away is waited for.
    Use it as a context manager, or call `aclose`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._transport = Transport(partial(find_endpoint, url, token), deadline_s=deadline_s, patience_s=patience_s)
        self.agents = AsyncAgents(self._transport)
        self.approvals = AsyncApprovals(self._transport)
        self.blobs = AsyncBlobs(self._transport)
        self.conversations = AsyncConversations(self._transport)
        self.machines = AsyncMachines(self._transport)
        self.environments = AsyncEnvironments(self._transport)
        self.principals = AsyncPrincipals(self._transport)
        self.terminals = AsyncTerminals(self._transport)

    @property
    def url(self) -> str:
        return self._transport.url

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()
