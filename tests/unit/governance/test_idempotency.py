"""Running under a key: what is remembered, what is released, and who keeps the lease."""

import logging
from collections.abc import Collection

import pytest

from eventually import eventually
from outlive.base import ConflictError, OperationId, UnavailableError, new_operation_id
from outlive.governance import Answer, Claim, KeyRow, KeyScope, decide_claim, open_idempotency
from outlive.governance.idempotency import KEPT_S
from outlive.testing.idempotency import scope_of

pytestmark = pytest.mark.anyio

NOW = 1_900_000_000_000
OPERATION = new_operation_id()
ANSWER = Answer(201, (), b"done")


class Notes:
    """Keys that note what was done to them."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.recorded: Answer | None = None
        self.is_away = False

    async def claim(self, scope: KeyScope, request: bytes) -> Claim | Answer:
        return Claim(scope, OPERATION, f"holder of {scope.key}")

    async def stands_for_other(self, scope: KeyScope, request: bytes) -> bool:
        return False

    async def renew(self, claims: Collection[Claim]) -> None:
        self.notes += [f"renewed {claim.scope.key}" for claim in claims]
        if self.is_away:
            raise UnavailableError("test.away", "Away.")

    async def record(self, claim: Claim, answer: Answer) -> None:
        self.notes.append(f"recorded {answer.status}")
        self.recorded = answer

    async def release(self, claim: Claim) -> None:
        self.notes.append("released")
        if self.is_away:
            raise UnavailableError("test.away", "Away.")


def row(lease_until: int = NOW, created_at: int = NOW, answer: Answer | None = None) -> KeyRow:
    return KeyRow(b"body", OPERATION, lease_until, created_at, answer)


def test_a_key_that_is_new_or_too_old_gets_an_operation_of_its_own() -> None:
    for stored in (None, row(created_at=NOW - KEPT_S * 1000, answer=ANSWER)):
        claim = decide_claim(stored, scope_of(), b"other body", NOW)
        assert isinstance(claim, Claim)
        assert claim.operation != OPERATION


def test_a_key_whose_lease_ran_out_keeps_its_operation() -> None:
    claim = decide_claim(row(lease_until=NOW), scope_of(), b"body", NOW)
    assert isinstance(claim, Claim)
    assert claim.operation == OPERATION


def test_an_answer_is_found_whatever_the_lease_says() -> None:
    for lease_until in (0, NOW, NOW + 1000):
        assert decide_claim(row(lease_until, answer=ANSWER), scope_of(), b"body", NOW) == ANSWER


def test_a_key_that_is_held_is_refused_with_a_time_to_come_back() -> None:
    with pytest.raises(ConflictError) as refused:
        decide_claim(row(lease_until=NOW + 1), scope_of(), b"body", NOW)
    assert (refused.value.code, refused.value.retry_after_s) == ("idempotency.in_flight", 1)


@pytest.mark.parametrize("stored", [row(), row(NOW + 1), row(answer=ANSWER)])
def test_another_body_is_refused_first(stored: KeyRow) -> None:
    with pytest.raises(ConflictError) as refused:
        decide_claim(stored, scope_of(), b"other", NOW)
    assert refused.value.code == "idempotency.key_reused"


@pytest.mark.parametrize(
    ("status", "note"),
    [
        (200, "recorded 200"),
        (404, "recorded 404"),
        (409, "recorded 409"),
        (429, "released"),
        (500, "released"),
        (503, "released"),
    ],
)
async def test_only_what_is_final_is_remembered(status: int, note: str) -> None:
    notes = Notes()

    async def act(operation: OperationId) -> Answer:
        assert operation == OPERATION
        return Answer(status, (), b"")

    async with open_idempotency(notes) as idempotency:
        assert await idempotency.run(scope_of(), b"body", act) == (Answer(status, (), b""), False)
        assert not idempotency._held
    assert notes.notes == [note]


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_bug_releases_the_key_and_comes_out_as_it_is(is_away: bool) -> None:
    notes = Notes()
    notes.is_away = is_away

    async def fail(operation: OperationId) -> Answer:
        raise ZeroDivisionError

    async with open_idempotency(notes) as idempotency:
        with pytest.raises(ZeroDivisionError):
            await idempotency.run(scope_of(), b"body", fail)
        assert not idempotency._held
    assert notes.notes == ["released"]


async def test_a_lease_is_renewed_while_its_request_runs_and_only_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("outlive.governance.idempotency.RENEW_S", 0.01)
    notes = Notes()
    notes.is_away = True  # a renewal that fails is said, and tried again

    with caplog.at_level(logging.WARNING):
        async with open_idempotency(notes) as idempotency:
            for key in ("first", "second"):

                async def act(operation: OperationId, note: str = f"renewed {key}") -> Answer:
                    notes.notes.clear()
                    await eventually(lambda: notes.notes.count(note) >= 3)
                    return ANSWER

                await idempotency.run(scope_of(key), b"body", act)
                # While the second one runs, the first one's lease is left alone.
                assert set(notes.notes) == {f"renewed {key}", "recorded 201"}
    assert "were not renewed" in caplog.text


async def test_a_secret_is_in_the_first_answer_and_never_recorded() -> None:
    notes = Notes()

    async def act(_: OperationId) -> Answer:
        return Answer(201, (), b"a secret", kept=b"no secret")

    async with open_idempotency(notes) as idempotency:
        answer, is_replayed = await idempotency.run(scope_of(), b"body", act)
    assert (answer.body, is_replayed) == (b"a secret", False)
    assert notes.recorded == Answer(201, (), b"no secret")
