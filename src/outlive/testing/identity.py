"""What every store of principals promises: subclass `PrincipalsContract` and give it a `principals` fixture."""

import anyio
import pytest

from outlive.base import ConflictError, InvalidError, NotFoundError, UnauthenticatedError, is_id, new_principal_id
from outlive.governance.identity import ALL_RIGHTS, Principal, Principals, new_token, rights_of

TOKEN = "a-long-and-random-token"  # noqa: S105  only of tests


async def make(principals: Principals, name: str, token: str | None = None) -> Principal:
    return await principals.create(
        new_principal_id(), name=name, kind="agent", rights=rights_of("agent"), token=token or new_token()
    )


class PrincipalsContract:
    async def test_an_unknown_token_is_nobodys(self, principals: Principals) -> None:
        await principals.ensure_owner(TOKEN)
        for token in ("", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\0", "ä", "\ud800", "x" * 100_000):
            with pytest.raises(UnauthenticatedError):
                await principals.authenticate(token)

    async def test_the_owner_is_a_person_known_by_the_token(self, principals: Principals) -> None:
        owner = await principals.ensure_owner(TOKEN)
        assert (owner.name, owner.kind, owner.rights, owner.is_owner) == ("owner", "person", ALL_RIGHTS, True)
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
        await make(principals, "anna", "the token of anna")
        stored = await self.stored_bytes()
        assert TOKEN.encode() not in stored
        assert b"the token of anna" not in stored

    async def test_a_principal_is_known_by_its_token_id_and_name_with_its_rights(self, principals: Principals) -> None:
        made = await principals.create(
            new_principal_id(), name="Änna 1", kind="device", rights=frozenset({"observe"}), token=TOKEN
        )
        assert (made.name, made.kind, made.is_owner, made.deleted_at) == ("Änna 1", "device", False, None)
        assert made.rights == {"observe"}
        assert made.created_at
        assert await principals.authenticate(TOKEN) == made
        assert await principals.get(made.id) == made
        assert await principals.find("äNNA 1") == made

    async def test_made_again_under_its_id_it_is_the_same_and_both_tokens_work(self, principals: Principals) -> None:
        """A process that died after making it never told its token: another is needed, and harms nobody."""
        id = new_principal_id()
        made = {
            await principals.create(id, name="ci", kind="service", rights=rights_of("service"), token=token)
            for token in ("first", "second")
        }
        assert made == {await principals.authenticate("first"), await principals.authenticate("second")}
        assert len(made) == 1

    @pytest.mark.parametrize("name", ["anna", "ANNA", "\uff41nna"])
    async def test_the_name_of_a_living_principal_is_taken_however_it_is_written(
        self, principals: Principals, name: str
    ) -> None:
        first = await make(principals, "Anna")
        with pytest.raises(ConflictError) as refused:
            await make(principals, name, "second")
        assert refused.value.code == "principal.name_taken"
        with pytest.raises(UnauthenticatedError):
            await principals.authenticate("second")
        await principals.delete(first.id)
        assert (await make(principals, name)).id != first.id

    async def test_of_many_that_want_a_name_at_once_one_gets_it(self, principals: Principals) -> None:
        made: list[Principal] = []
        refused: list[str] = []

        async def try_to_make() -> None:
            try:
                made.append(await make(principals, "anna"))
            except ConflictError as error:
                refused.append(error.code)

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(try_to_make)
        assert len(made) == 1
        assert refused == ["principal.name_taken"] * 9
        assert await principals.list(limit=10) == made

    @pytest.mark.parametrize("name", ["", "x" * 65, " x", "x ", "a\nb", "a\0", "\u202eabc", "prin_" + "0" * 32])
    async def test_a_name_that_could_deceive_is_refused(self, principals: Principals, name: str) -> None:
        with pytest.raises(InvalidError):
            await make(principals, name)

    @pytest.mark.parametrize("name", ["owner", "OWNER"])
    async def test_nobody_else_is_called_owner(self, principals: Principals, name: str) -> None:
        with pytest.raises(ConflictError):
            await make(principals, name)

    async def test_a_deleted_principal_is_shut_out_for_good_and_stays_known_by_its_id(
        self, principals: Principals
    ) -> None:
        made = await make(principals, "anna", TOKEN)
        gone = await principals.delete(made.id)
        assert gone.deleted_at is not None
        assert await principals.delete(made.id) == gone
        assert await principals.get(made.id) == gone
        assert await principals.list(limit=10) == []
        with pytest.raises(UnauthenticatedError):
            await principals.authenticate(TOKEN)
        with pytest.raises(NotFoundError):
            await principals.find("anna")
        with pytest.raises(ConflictError) as refused:
            await principals.create(made.id, name="anna", kind="agent", rights=made.rights, token="late")  # noqa: S106
        assert refused.value.code == "principal.deleted"
        with pytest.raises(UnauthenticatedError):
            await principals.authenticate("late")

    async def test_the_owner_cannot_be_deleted(self, principals: Principals) -> None:
        owner = await principals.ensure_owner(TOKEN)
        with pytest.raises(ConflictError) as refused:
            await principals.delete(owner.id)
        assert refused.value.code == "principal.owner"
        assert await principals.authenticate(TOKEN) == owner

    async def test_nobody_is_found_who_never_was(self, principals: Principals) -> None:
        for lookup in (principals.get, principals.delete):
            with pytest.raises(NotFoundError):
                await lookup(new_principal_id())
        with pytest.raises(NotFoundError):
            await principals.find("nobody")

    async def test_the_living_are_listed_newest_first_page_by_page(self, principals: Principals) -> None:
        made = [await make(principals, f"agent {number}") for number in range(5)]
        await principals.delete(made.pop(2).id)
        first = await principals.list(limit=2)
        rest = await principals.list(limit=9, before=first[-1].id)
        assert [*first, *rest] == made[::-1]

    async def stored_bytes(self) -> bytes:
        """Everything that is stored. The subclass knows where."""
        raise NotImplementedError
