"""The example of subagents on forks does what its page and the guide show."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.stack.homes import Home

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("examples")]

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "subagents"
PAGES = (FOLDER / "README.md", ROOT / "docs" / "guides" / "subagents.md")


def tool(name: str, word: str = "tool", **given: str) -> str:
    arguments = json.dumps(given).replace("[", "\\u005b").replace("]", "\\u005d")
    return f"[[{word} {name} {arguments}]]"


def order(command: str, said: str) -> str:
    return f"{tool('shell', command=f'{command} numbers.txt > new; mv new numbers.txt')} [[say {said}]]"


SCRIPT = " ".join(
    (
        tool("shell", command="printf '3\\n1\\n2\\n' > numbers.txt; cat numbers.txt"),
        tool("subagent", prompt=order("sort", "1 2 3"), machine="fork"),
        tool("subagent", "also tool", prompt=order("cat", "3 1 2"), machine="fork"),
        "[[say The one with sort did it.]]",
    )
)


def test_the_example_of_subagents_prints_what_its_page_and_the_guide_show(stack: Home) -> None:
    ran = subprocess.run(
        [sys.executable, "run.py", SCRIPT],
        cwd=FOLDER,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    for page in PAGES:
        [shown] = re.findall(r"\$ python run\.py\n(.*?)```", page.read_text(), re.DOTALL)
        lines, told = ran.stdout.splitlines(), shown.splitlines()
        assert [sorted(lines), lines[0], lines[-1]] == [sorted(told), told[0], told[-1]], (
            page
        )  # which began first may vary
