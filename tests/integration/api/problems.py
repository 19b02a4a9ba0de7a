"""The one shape of every error."""

import json
from typing import Any

import httpx

from outlive.api.errors import STATUS, STATUS_OF_CODE
from outlive.base import KINDS


def assert_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """That this is a problem as we promise it, with one of `statuses`; returns it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(answer.content)
    assert problem["kind"] in KINDS
    assert "." in problem["code"]
    assert problem["title"]
    assert problem["detail"]
    assert problem["status"] == answer.status_code
    assert answer.status_code == STATUS_OF_CODE.get(problem["code"], STATUS[problem["kind"]])
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return problem
