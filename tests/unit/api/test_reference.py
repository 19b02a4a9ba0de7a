"""docs/reference/http.md leaves nothing out: no route, no code, no kind, no metric."""

import re
from pathlib import Path

from outlive.api.errors import STATUS, STATUS_OF_CODE
from outlive.api.metrics import Metrics
from outlive.api.routes import (
    agents,
    blobs,
    conversations,
    events,
    health,
    machine_exec,
    machine_files,
    machines,
    messages,
    principals,
    replays,
    terminal_attach,
    terminal_history,
    terminals,
)
from outlive.base import KINDS, OutliveError
from outlive.machine.guest_link.refusals import NOT_STARTED_AS, REFUSALS, UNKNOWN

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
RAISED = re.compile(r'Error\(\s*"([a-z_]+\.[a-z_]+)"')


def test_every_route_is_described() -> None:
    routes = {
        f"`{method} {path.replace(':anything', '')}"
        for module in (
            agents,
            blobs,
            conversations,
            events,
            health,
            machine_exec,
            machine_files,
            machines,
            messages,
            principals,
            replays,
            terminal_attach,
            terminal_history,
            terminals,
        )
        for route in module.router.routes
        for method in getattr(route, "methods", ())
        if (path := getattr(route, "path", None))
    }
    assert len(routes) >= 13
    assert {route for route in routes if route not in PAGE} == set()


def test_every_code_of_the_api_is_described() -> None:
    raised = {
        code for path in (ROOT / "src" / "outlive" / "api").rglob("*.py") for code in RAISED.findall(path.read_text())
    }
    assert "request.malformed" in raised
    known = raised | set(STATUS_OF_CODE) | {"idempotency.key_reused", "idempotency.in_flight", "token.unknown"}
    known -= {"conversation.not_found", "blob.not_found"}
    assert {code for code in known if f"`{code}`" not in PAGE} == set()


def test_every_code_of_a_machine_is_described_also_those_that_begin_as_a_word_of_its_guest() -> None:
    machine = ROOT / "src" / "outlive" / "machine"
    on_the_way = [
        *(machine / "guest_link" / name for name in ("channel.py", "files.py", "guest.py", "running.py", "stream.py")),
        *(machine / "node" / name for name in ("door.py", "gate.py", "run.py", "runs.py", "port_stream.py")),
        machine / "door.py",
    ]
    raised = {code for path in on_the_way for code in RAISED.findall(path.read_text())}
    assert {"machine.guest_away", "effect.not_started", "file.too_many"} <= raised
    named = {each.code for each in (*REFUSALS.values(), *NOT_STARTED_AS.values(), UNKNOWN)}
    assert {code for code in raised | named if f"`{code}`" not in PAGE} == set()


def test_what_a_machine_refuses_has_one_status_and_it_is_the_described_one() -> None:
    rows = [re.findall(r"`([a-z_]+\.[a-z_]+)`", row) for row in PAGE.splitlines() if row.startswith("| `")]
    cells = [row.split(" | ") for row in PAGE.splitlines() if row.startswith("| `")]
    said: dict[str, set[str]] = {}
    for codes, (_, *more) in zip(rows, cells, strict=True):
        for code in codes:
            said.setdefault(code, set()).update(more[0].split(", "))
    refusals = (*REFUSALS.values(), *NOT_STARTED_AS.values(), UNKNOWN)
    kinds: dict[str, set[type[OutliveError]]] = {}
    for each in refusals:
        kinds.setdefault(each.code, set()).add(each.error)
    assert {code: found for code, found in kinds.items() if len(found) > 1} == {}
    wrong = {each.code for each in refusals if str(STATUS[each.error.kind]) not in said[each.code]}
    assert wrong == set()


def test_every_kind_is_described_with_its_status() -> None:
    assert {kind for kind in KINDS if f"| `{kind}` | {STATUS[kind]}" not in PAGE} == set()


def test_every_metric_is_described() -> None:
    text = Metrics().to_text().decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and "_created" not in line}
    assert len(names) >= 6
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
