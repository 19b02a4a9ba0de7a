"""A process that is started again is there the sooner the less it loads: none loads what only another one needs."""

import subprocess
import sys

import pytest

_SHOWN = "import sys, outlive.processes.{0}; print(*sorted(sys.modules))"


@pytest.mark.parametrize(
    ("process", "foreign"),
    [
        ("api", {"numpy", "httpx", "rich", "temporalio.worker", "outlive.loop.activities", "outlive.machine.node"}),
        ("node", {"numpy", "httpx", "rich", "outlive.loop.activities", "outlive.wiring.loop"}),
        ("tool_worker", {"numpy", "fastapi", "outlive.wiring.loop", "outlive.machine.node"}),
        ("worker", {"numpy", "httpx", "rich", "anthropic", "openai", "fastapi", "outlive.machine.node"}),
        ("supervisor", {"numpy", "httpx", "rich", "fastapi", "temporalio"}),
    ],
)
def test_no_process_loads_what_only_others_need(process: str, foreign: set[str]) -> None:
    command = [sys.executable, "-c", _SHOWN.format(process)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert foreign & set(done.stdout.split()) == set()
