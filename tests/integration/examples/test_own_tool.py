"""The example of an own tool does what its page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("examples")]

FOLDER = Path(__file__).parents[3] / "examples" / "own_tool"
SCRIPT = (
    '[[tool price {"order": "1042"}]] [[tool pay_back {"order": "1042", "amount": 10}]] '
    "[[say Order 1042 costs 119.00 with tax, and 10.00 of it is paid back.]]"
)


def test_the_example_of_an_own_tool_prints_what_its_page_shows(stack: Home, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [*COMMAND, "worker", "--tools", "orders"], cwd=FOLDER, env=stack.environment, stderr=log
        )
    try:
        eventually_sync(lambda: '"working"' in (tmp_path / "log").read_text(), 90)
        ran = subprocess.run(
            [sys.executable, "run.py", SCRIPT],
            cwd=FOLDER,
            env=stack.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        worker.kill()
        worker.wait()
    assert ran.returncode == 0, ran.stderr
    [shown] = re.findall(r"\$ python run\.py\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert ran.stdout == shown
