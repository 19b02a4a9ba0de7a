"""The examples of an approval and of a long wait say what their pages and the guide show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.stack.homes import Home

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("examples")]

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "approvals.md"
SCRIPT = " ".join(
    (
        *(
            f"[[tool shell {json.dumps({'command': command})}]]"
            for command in ("touch deployed --force", "touch deployed")
        ),
        "[[say Deployed, without force.]]",
    )
)


def say(example: str, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "run.py", *arguments],
        cwd=ROOT / "examples" / example,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_example_of_an_approval_prints_what_its_page_and_the_guide_show(stack: Home) -> None:
    said = say("approval", stack.environment, SCRIPT)
    for page in (ROOT / "examples" / "approval" / "README.md", GUIDE):
        [shown] = re.findall(r"\$ python run\.py\n(.*?)```", page.read_text(), re.DOTALL)
        assert said == shown, page


def test_the_example_of_a_long_wait_prints_what_its_page_and_the_guide_show() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    said = say("long_wait", environment)
    for page in (ROOT / "examples" / "long_wait" / "README.md", GUIDE):
        [shown] = re.findall(r"^```text\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        assert said == shown, page
