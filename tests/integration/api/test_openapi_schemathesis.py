"""What /openapi.json says is what the server does: generated requests, right and wrong ones, on every operation."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio.from_thread
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
)

from integration.api.machines import open_machine_api
from integration.api.stack import TOKEN
from outlive.base import is_id, new_principal_id

EXAMPLES = 6  # of each operation
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    ignored_auth,
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running API, on a loop in a thread of its own: schemathesis calls it without one."""

    @asynccontextmanager
    async def run(home: Path) -> AsyncIterator[str]:
        async with open_machine_api(home) as machines:
            yield machines.api.url

    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(run(tmp_path_factory.mktemp("api"))) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def document(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json", headers=HEADERS)


def _aim(case: Any, url: str) -> None:
    """A random id is the id of nothing; let most requests find something. A stream that is found does not end."""
    given = (case.path_parameters or {}).get("conversation")
    if isinstance(given, str) and is_id(given, "conv") and not case.path.endswith("/stream"):
        made = httpx.post(f"{url}/v1/conversations", json={}, headers=HEADERS, trust_env=False)
        case.path_parameters["conversation"] = made.json()["id"]
    principal = (case.path_parameters or {}).get("principal")
    if isinstance(principal, str) and is_id(principal, "prin"):
        named = {"name": new_principal_id().replace("_", " "), "kind": "agent"}
        made = httpx.post(f"{url}/v1/principals", json=named, headers=HEADERS, trust_env=False)
        case.path_parameters["principal"] = made.json()["id"]
    machine = (case.path_parameters or {}).get("machine")
    # Not for commands: what is generated must not run, these machines are processes of this host.
    is_harmless = case.method.upper() == "GET" or not case.path.endswith(("/exec", "/terminals"))
    if isinstance(machine, str) and is_id(machine, "mach") and is_harmless:
        case.path_parameters["machine"] = _machine(url)
    terminal = (case.path_parameters or {}).get("terminal")
    # What is typed is only read by a program that does nothing with it.
    if isinstance(terminal, str) and is_id(terminal, "term"):
        case.path_parameters["terminal"] = _terminal(url)


def _make(url: str, what: str, body: dict[str, Any]) -> str:
    made: str = httpx.post(f"{url}/v1/{what}", json=body, headers=HEADERS, trust_env=False).json()["id"]
    return made


_made: dict[str, str] = {}
_opened: dict[str, str] = {}


def _machine(url: str) -> str:
    """One that runs: the same for all requests until one of them has deleted it, or has put it to sleep."""
    known = _made.get(url)
    if known is not None:
        shown = httpx.get(f"{url}/v1/machines/{known}", headers=HEADERS, trust_env=False).json()
        if shown.get("state") == "running":
            return known
    _made[url] = _make(url, "machines", {})
    return _made[url]


def _terminal(url: str) -> str:
    """One that is open: a few are enough for all."""
    known = _opened.get(url)
    if known is not None:
        shown = httpx.get(f"{url}/v1/terminals/{known}", headers=HEADERS, trust_env=False).json()
        if shown["state"] == "open":
            return known
    machine = _make(url, "machines", {})
    command = {"command": "stty raw -echo; exec cat > /dev/null"}
    _opened[url] = _make(url, f"machines/{machine}/terminals", command)
    return _opened[url]


@pytest.mark.timeout(600)  # a few seconds for each of many operations
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_the_server_does_what_the_document_says(document: Any, url: str, mode: GenerationMode) -> None:
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) >= 13
    statuses: Counter[int] = Counter()
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            _aim(case, url)
            answer = case.call_and_validate(headers=HEADERS, checks=CHECKS, timeout=20)
            statuses[answer.status_code] += 1

        with suppress(Unsatisfiable):  # there is nothing to get wrong in an operation that takes nothing
            check()
    # That it went beyond the door: what is right was done, and what is wrong was refused.
    assert statuses[200 if mode is GenerationMode.POSITIVE else 422] > EXAMPLES, statuses
