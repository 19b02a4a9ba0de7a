"""The SDK's principals over a real API, and a token that is never lost with the answer that held it."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from integration.api.stack import TOKEN, Api, open_api
from integration.client.proxy import WHOLE, Fate, open_proxy
from outlive.base import ConflictError, DeniedError, InvalidError, NotFoundError, UnauthenticatedError
from outlive.client import AsyncClient, AsyncPrincipals, Client, Principals
from outlive.client.principals import PrincipalFacts

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Api]:
    async with open_api(tmp_path) as api:
        yield api


async def test_a_principal_acts_in_its_own_name_until_it_is_deleted(api: Api) -> None:
    async with AsyncClient(api.url, TOKEN) as owner:
        made = await owner.principals.create("a/b ?", "agent")
        assert (made.name, made.kind, made.rights) == ("a/b ?", "agent", ("observe", "type"))
        assert made.token is not None
        assert made.token not in repr(made)
        async with AsyncClient(api.url, made.token) as agent:
            me = await agent.principals.me()
            assert (me.id, me.token, "token" in me.to_json()) == (made.id, None, False)
            conversation = await agent.conversations.create()
            sent = await conversation.send("hello")
            with pytest.raises(DeniedError):
                await agent.principals.list()
            assert [each.id for each in await owner.principals.list(limit=None)] == [
                made.id,
                (await owner.principals.me()).id,
            ]
            assert await owner.principals.get("A/B ?") == await owner.principals.get(made.id) == me
            seen = [event async for event in (await owner.conversations.get(conversation.id)).events()]
            assert [event.actor for event in seen if event.seq == sent.seq] == [made.id]
            await owner.principals.delete("a/b ?")
            with pytest.raises(UnauthenticatedError):
                await agent.principals.me()
        await owner.principals.delete(made.id)
        for name in ("a/b ?", "..", "me", "prin_" + "0" * 32):
            with pytest.raises(NotFoundError):
                await owner.principals.get(name)


async def test_the_sync_client_does_the_same(api: Api) -> None:
    def use() -> PrincipalFacts:
        with Client(api.url, TOKEN) as client:
            made = client.principals.create("anna", "person", rights=["observe"])
            assert client.principals.get("anna").id == made.id
            assert len(client.principals.list()) == 2
            with pytest.raises(ConflictError):
                client.principals.create("anna", "person")
            with pytest.raises(InvalidError):
                client.principals.create("ben", "robot")
            with Client(api.url, made.token) as anna:
                assert anna.principals.me().rights == ("observe",)
                with pytest.raises(DeniedError):
                    anna.conversations.create()
            client.principals.delete("anna")
            return client.principals.get(made.id)

    assert (await anyio.to_thread.run_sync(use)).deleted_at is not None


def test_the_sync_form_has_every_method() -> None:
    public = {name for name in vars(AsyncPrincipals) if not name.startswith("_")}
    assert public == {name for name in vars(Principals) if not name.startswith("_")}


async def test_an_answer_that_is_lost_with_its_token_leaves_nobody_without_one(api: Api) -> None:
    async with (
        open_proxy(api.address[1], lambda number: Fate(50) if number == 1 else WHOLE) as proxy,
        AsyncClient(proxy.url, TOKEN) as client,
    ):
        made = await client.principals.create("ci", "service")
        assert proxy.cuts == 1
        assert [each.name for each in await client.principals.list()] == ["ci", "owner"]
    async with AsyncClient(api.url, made.token) as service:
        assert (await service.principals.me()).id == made.id
