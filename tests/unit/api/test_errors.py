"""The table of errors is whole: every kind has a status and a title, and every problem the same shape."""

import json

import pytest

from outlive.api.errors import STATUS, STATUS_OF_CODE, TITLES, status_of, to_answer
from outlive.base import KINDS, ExhaustedError, InvalidError, OutliveError, UnauthenticatedError, UnavailableError


def test_every_kind_has_a_row() -> None:
    assert set(STATUS) == set(TITLES) == set(KINDS)
    kinds = {cls.kind for cls in OutliveError.__subclasses__()}
    assert kinds == set(KINDS)


@pytest.mark.parametrize(("code", "status"), STATUS_OF_CODE.items())
def test_a_code_of_http_has_its_own_status(code: str, status: int) -> None:
    assert status_of(InvalidError(code, "x")) == status


def test_a_limit_is_429_unless_it_is_the_size_of_a_body() -> None:
    assert status_of(ExhaustedError("storage.busy", "x")) == 429
    assert status_of(ExhaustedError("request.too_large", "x")) == 413


def test_facts_are_told_and_cannot_hide_what_is_promised() -> None:
    problem = json.loads(to_answer(InvalidError("a.b", "Wrong.", head=3, status=1, title="x", kind="y")).body)
    assert problem == {
        "kind": "invalid",
        "code": "a.b",
        "title": TITLES["invalid"],
        "detail": "Wrong.",
        "status": 422,
        "head": 3,
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.1, "1"), (1, "1"), (2.5, "3"), (None, "1")])
def test_whoever_may_try_again_is_told_when(seconds: float | None, header: str) -> None:
    headers = dict(to_answer(UnavailableError("a.b", "Away.", retry_after_s=seconds)).headers)
    assert headers["retry-after"] == header


def test_a_wrong_token_is_told_from_a_missing_one() -> None:
    missing = dict(to_answer(UnauthenticatedError("token.missing", "x")).headers)["www-authenticate"]
    unknown = dict(to_answer(UnauthenticatedError("token.unknown", "x")).headers)["www-authenticate"]
    assert missing == 'Bearer realm="outlive"'
    assert unknown == 'Bearer realm="outlive", error="invalid_token"'
