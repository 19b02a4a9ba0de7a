"""What every store of idempotency keys promises: subclass `IdempotencyContract` and give it a `place` fixture."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import anyio
import pytest

from outlive.base import ConflictError, OperationId, PrincipalId
from outlive.governance.idempotency import KEPT_S, LEASE_S, PURGED_AT_ONCE, Answer, Claim, IdempotencyKeys, KeyScope

_ANSWER = Answer(201, (("content-type", "application/json"), ("location", "/x")), b'{"a": "\xc3\xa4"}\0')
_BODY, _OTHER_BODY = b"1" * 32, b"2" * 32


class HeldClock:
    """Time that goes on only when told to."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 2, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def pass_time(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class KeysPlace(NamedTuple):
    """Two stores over the same rows, as two processes have them, and their clock."""

    keys: IdempotencyKeys
    others: IdempotencyKeys
    clock: HeldClock


def scope_of(key: str = "key", principal: str = "prin_1", method: str = "POST", path: str = "/v1/x") -> KeyScope:
    return KeyScope(PrincipalId(principal), method, path, key)


async def claim(keys: IdempotencyKeys, scope: KeyScope | None = None, body: bytes = _BODY) -> Claim:
    claimed = await keys.claim(scope or scope_of(), body)
    assert isinstance(claimed, Claim)
    return claimed


async def refusal(keys: IdempotencyKeys, body: bytes = _BODY) -> str:
    with pytest.raises(ConflictError) as refused:
        await keys.claim(scope_of(), body)
    return refused.value.code


class IdempotencyContract:
    async def test_a_recorded_answer_comes_back_whole_wherever_it_is_asked_for(self, place: KeysPlace) -> None:
        await place.keys.record(await claim(place.keys), _ANSWER)
        assert await place.keys.claim(scope_of(), _BODY) == _ANSWER
        assert await place.others.claim(scope_of(), _BODY) == _ANSWER

    async def test_a_key_that_is_worked_on_is_refused_until_its_lease_ends(self, place: KeysPlace) -> None:
        first = await claim(place.keys)
        assert await refusal(place.others) == "idempotency.in_flight"
        place.clock.pass_time(LEASE_S - 0.01)
        assert await refusal(place.others) == "idempotency.in_flight"
        place.clock.pass_time(0.01)
        second = await claim(place.others)
        assert second.operation == first.operation
        assert second.holder != first.holder

    async def test_another_body_is_refused_whatever_became_of_the_first(self, place: KeysPlace) -> None:
        first = await claim(place.keys)
        assert await refusal(place.keys, _OTHER_BODY) == "idempotency.key_reused"
        place.clock.pass_time(LEASE_S)
        assert await refusal(place.keys, _OTHER_BODY) == "idempotency.key_reused"
        await place.keys.release(first)
        assert await refusal(place.keys, _OTHER_BODY) == "idempotency.key_reused"
        await place.keys.record(first, _ANSWER)
        assert await refusal(place.keys, _OTHER_BODY) == "idempotency.key_reused"

    async def test_it_can_be_asked_whether_a_key_stands_for_another_body_without_taking_it(
        self, place: KeysPlace
    ) -> None:
        assert not await place.keys.stands_for_other(scope_of(), _BODY)
        await place.keys.record(await claim(place.keys), _ANSWER)
        for keys in (place.keys, place.others):
            assert not await keys.stands_for_other(scope_of(), _BODY)
            assert await keys.stands_for_other(scope_of(), _OTHER_BODY)
            assert not await keys.stands_for_other(scope_of(path="/v1/y"), _OTHER_BODY)
        place.clock.pass_time(KEPT_S)
        assert not await place.keys.stands_for_other(scope_of(), _OTHER_BODY)

    async def test_a_renewed_lease_goes_on(self, place: KeysPlace) -> None:
        held = [await claim(place.keys), await claim(place.keys, scope_of("other"))]
        for _ in range(3):
            place.clock.pass_time(LEASE_S - 1)
            await place.keys.renew(held)
            assert await refusal(place.others) == "idempotency.in_flight"

    async def test_a_released_key_keeps_its_operation(self, place: KeysPlace) -> None:
        first = await claim(place.keys)
        await place.keys.release(first)
        assert (await claim(place.others)).operation == first.operation

    async def test_whoever_was_taken_over_from_changes_nothing_any_more(self, place: KeysPlace) -> None:
        old = await claim(place.keys)
        place.clock.pass_time(LEASE_S)
        new = await claim(place.others)
        await place.keys.record(old, _ANSWER._replace(status=404))
        await place.keys.release(old)
        place.clock.pass_time(LEASE_S - 1)
        await place.keys.renew([old])
        assert await refusal(place.keys) == "idempotency.in_flight"
        place.clock.pass_time(1)
        newest = await claim(place.keys)
        assert newest.operation == new.operation == old.operation
        await place.keys.record(newest, _ANSWER)
        assert await place.others.claim(scope_of(), _BODY) == _ANSWER

    async def test_a_recorded_answer_is_not_undone_by_a_late_release_or_renewal(self, place: KeysPlace) -> None:
        held = await claim(place.keys)
        await place.keys.record(held, _ANSWER)
        await place.keys.release(held)
        await place.keys.renew([held])
        assert await place.keys.claim(scope_of(), _BODY) == _ANSWER

    async def test_keys_of_others_and_of_other_paths_are_other_keys(self, place: KeysPlace) -> None:
        scopes = [
            scope_of(),
            scope_of("KEY"),
            scope_of(principal="prin_2"),
            scope_of(method="PUT"),
            scope_of(path="/v1/y"),
        ]
        operations = {(await claim(place.keys, scope)).operation for scope in scopes}
        assert len(operations) == len(scopes)

    async def test_of_many_at_once_exactly_one_may_act(self, place: KeysPlace) -> None:
        claims: list[Claim] = []
        refusals: list[str] = []

        async def race(keys: IdempotencyKeys) -> None:
            try:
                claims.append(await claim(keys))
            except ConflictError as error:
                refusals.append(error.code)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(race, place.keys if number % 2 else place.others)
        assert len(claims) == 1
        assert refusals == ["idempotency.in_flight"] * 19

    async def test_of_many_that_take_over_exactly_one_may_act(self, place: KeysPlace) -> None:
        dead = await claim(place.keys)
        place.clock.pass_time(LEASE_S)
        taken: list[OperationId] = []
        refusals: list[str] = []

        async def race(keys: IdempotencyKeys) -> None:
            try:
                taken.append((await claim(keys)).operation)
            except ConflictError as error:
                refusals.append(error.code)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(race, place.keys if number % 2 else place.others)
        assert taken == [dead.operation]
        assert refusals == ["idempotency.in_flight"] * 19

    async def test_a_key_is_forgotten_after_a_day(self, place: KeysPlace) -> None:
        first = await claim(place.keys)
        await place.keys.record(first, _ANSWER)
        place.clock.pass_time(KEPT_S - 1)
        assert await place.keys.claim(scope_of(), _BODY) == _ANSWER
        place.clock.pass_time(1)
        again = await claim(place.keys, body=_OTHER_BODY)
        assert again.operation != first.operation
        assert await refusal(place.keys, _OTHER_BODY) == "idempotency.in_flight"

    async def test_a_key_that_was_taken_over_is_not_kept_longer(self, place: KeysPlace) -> None:
        await claim(place.keys)
        place.clock.pass_time(KEPT_S - 1)
        await place.keys.record(await claim(place.keys), _ANSWER)
        place.clock.pass_time(1)
        await claim(place.keys)

    async def test_old_keys_go_a_few_with_each_claim(self, place: KeysPlace) -> None:
        for number in range(2 * PURGED_AT_ONCE):
            await place.keys.record(await claim(place.keys, scope_of(f"old {number}")), _ANSWER)
        place.clock.pass_time(KEPT_S)
        assert await self.count(place) == 2 * PURGED_AT_ONCE
        await claim(place.keys, scope_of("new 1"))
        assert await self.count(place) == PURGED_AT_ONCE + 1
        await claim(place.keys, scope_of("new 2"))
        assert await self.count(place) == 2

    async def count(self, place: KeysPlace) -> int:
        """How many keys are stored. The subclass knows where."""
        raise NotImplementedError
