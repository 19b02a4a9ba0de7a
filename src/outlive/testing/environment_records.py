"""What every store of environments promises: subclass `EnvironmentRecordsContract` and give it a `place` fixture."""

from functools import partial

import pytest

from outlive.base import BrokenError, ConflictError, NotFoundError, new_checkpoint_id
from outlive.machine.status import Environment
from outlive.testing.conversations import StorePlace
from outlive.testing.machine_records import (
    LATER,
    a_ready_checkpoint,
    a_running_machine,
    an_environment,
    at_once,
    records_at,
)


def one_warmer(environment: Environment) -> Environment:
    return environment.model_copy(update={"warm": environment.warm + 1, "changed_at": LATER})


class EnvironmentRecordsContract:
    @pytest.fixture
    def place(self) -> StorePlace:
        raise NotImplementedError("give me a place")

    async def test_an_environment_is_found_by_name_and_by_digest(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            made = an_environment(definition={"install": ["a\x00b 🧑‍🚀"], "limits": {"cpus": 0.5}}, log_key="k")
            assert await records.environments.put(made) == made
            assert await others.environments.get("env") == await others.environments.get("digest") == made
            assert await others.environments.list() == [made]

    async def test_put_again_it_keeps_what_was_built(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            calls = [partial(each.environments.put, an_environment()) for each in (records, others) * 4]
            assert await at_once(calls) == [an_environment()] * 8
            ready = await records.environments.change(
                "digest", lambda found: found.model_copy(update={"state": "ready", "changed_at": LATER})
            )
            assert await records.environments.put(an_environment()) == ready

    async def test_a_name_stands_for_what_was_put_last(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            old = await records.environments.put(an_environment("env", "old"))
            new = await records.environments.put(an_environment("env", "new"))
            alias = await records.environments.put(an_environment("alias", "new"))
            assert alias == new.model_copy(update={"name": "alias"})
            assert await records.environments.get("env") == new
            assert await records.environments.get("old") == old
            assert await records.environments.list() == [alias, new]
            assert await records.environments.put(old) == old
            assert await records.environments.list() == [alias, old]

    async def test_an_unknown_environment_is_not_found(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            for call in (
                partial(records.environments.get, "nowhere"),
                partial(records.environments.change, "nowhere", one_warmer),
            ):
                with pytest.raises(NotFoundError) as refused:
                    await call()
                assert refused.value.code == "environment.unknown"

    async def test_changes_at_once_never_lose_one(self, place: StorePlace) -> None:
        async with records_at(place) as records, records_at(place) as others:
            await records.environments.put(an_environment())
            await at_once([partial(each.environments.change, "digest", one_warmer) for each in (records, others) * 8])
            assert (await records.environments.get("env")).warm == 16

    async def test_a_refused_change_leaves_nothing(self, place: StorePlace) -> None:
        def refuse(environment: Environment) -> Environment:
            raise ConflictError("test.refused", "No.")

        def redefine(environment: Environment) -> Environment:
            return environment.model_copy(update={"definition": {}})

        async with records_at(place) as records:
            made = await records.environments.put(an_environment())
            with pytest.raises(ConflictError):
                await records.environments.change("digest", refuse)
            with pytest.raises(BrokenError):
                await records.environments.change("digest", redefine)
            assert await records.environments.get("digest") == made

    async def test_an_environment_starts_only_from_a_checkpoint_that_is_ready(self, place: StorePlace) -> None:
        async with records_at(place) as records:
            machine, _, _ = await a_running_machine(records)
            ready, unknown = await a_ready_checkpoint(records, machine), new_checkpoint_id()
            await records.environments.put(an_environment())
            for call in (
                partial(records.environments.put, an_environment("other", "other", checkpoint=unknown)),
                partial(
                    records.environments.change,
                    "digest",
                    lambda found: found.model_copy(update={"checkpoint": unknown}),
                ),
            ):
                with pytest.raises(NotFoundError) as refused:
                    await call()
                assert refused.value.code == "checkpoint.unknown"
            assert await records.environments.list() == [an_environment()]
            changed = await records.environments.change(
                "digest", lambda found: found.model_copy(update={"checkpoint": ready})
            )
            assert await records.environments.get("env") == changed
