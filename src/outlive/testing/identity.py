"""What every store of principals promises: subclass `PrincipalsContract` and give it a `principals` fixture."""

import anyio
import pytest

from outlive.base import UnauthenticatedError, is_id
from outlive.governance.identity import Principal, Principals

TOKEN = "a-long-and-random-token"  # noqa: S105  only of tests


class PrincipalsContract:
    async def test_an_unknown_token_is_nobodys(self, principals: Principals) -> None:
        await principals.ensure_owner(TOKEN)
        for token in ("", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\0", "ä", "\ud800", "x" * 100_000):
            with pytest.raises(UnauthenticatedError):
                await principals.authenticate(token)

    async def test_the_owner_is_a_person_known_by_the_token(self, principals: Principals) -> None:
        owner = await principals.ensure_owner(TOKEN)
        assert (owner.name, owner.kind) == ("owner", "person")
        assert is_id(owner.id, "prin")
        assert await principals.authenticate(TOKEN) == owner

    async def test_there_is_one_owner_however_often_it_is_ensured(self, principals: Principals) -> None:
        owners: set[Principal] = set()

        async def ensure() -> None:
            owners.add(await principals.ensure_owner(TOKEN))

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(ensure)
        assert len(owners) == 1

    async def test_a_new_token_of_the_owner_replaces_the_old_one(self, principals: Principals) -> None:
        owner = await principals.ensure_owner(TOKEN)
        assert await principals.ensure_owner("another-token") == owner
        assert await principals.authenticate("another-token") == owner
        with pytest.raises(UnauthenticatedError):
            await principals.authenticate(TOKEN)

    async def test_no_token_is_stored_in_clear(self, principals: Principals) -> None:
        await principals.ensure_owner(TOKEN)
        assert TOKEN.encode() not in await self.stored_bytes()

    async def stored_bytes(self) -> bytes:
        """Everything that is stored. The subclass knows where."""
        raise NotImplementedError
