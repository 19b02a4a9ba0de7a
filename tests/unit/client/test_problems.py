"""Every answer that says no becomes the error of its kind."""

import json

import pytest

from outlive.base import KINDS, BrokenError, Kind
from outlive.client.problems import error_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_problem_becomes_the_error_of_its_kind_with_code_message_and_facts(kind: Kind) -> None:
    problem: dict[str, object] = {
        "kind": kind,
        "code": "a.b",
        "title": "T",
        "detail": "What to do.",
        "status": 499,
        "seq": 7,
        "deep": {},
    }
    error = error_of(499, json.dumps(problem).encode(), "3")
    assert (error.kind, error.code, error.message, error.retry_after_s) == (kind, "a.b", "What to do.", 3.0)
    assert error.facts == {"seq": 7}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid"),
        (401, "unauthenticated"),
        (403, "denied"),
        (404, "not_found"),
        (405, "invalid"),
        (409, "conflict"),
        (413, "exhausted"),
        (421, "invalid"),
        (422, "invalid"),
        (429, "exhausted"),
        (500, "broken"),
        (502, "unavailable"),
        (503, "unavailable"),
        (504, "deadline"),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"\xff", b"{}", b'{"kind": "odd", "code": "x"}', b'{"kind": []}']
)
def test_an_answer_without_a_problem_is_judged_by_its_status(status: int, kind: Kind, body: bytes) -> None:
    error = error_of(status, body, None)
    assert (error.kind, error.code) == (kind, f"http.{status}")


def test_facts_cannot_take_the_place_of_arguments() -> None:
    problem = {"kind": "broken", "code": "x", "message": "m", "retry_after_s": 1, "self": 2, "a b": 3, "": 4}
    error = error_of(500, json.dumps(problem).encode(), None)
    assert isinstance(error, BrokenError)
    assert error.retry_after_s is None


@pytest.mark.parametrize("value", ["soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "1.5", "²", "", "9" * 400])
def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(value: str) -> None:
    assert error_of(503, b"", value).retry_after_s is None
