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


def run(stack: Home, folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "run.py", script],
        cwd=folder,
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_example_of_subagents_prints_what_its_page_and_the_guide_show(stack: Home) -> None:
    ran = run(stack, FOLDER, SCRIPT)
    assert ran.returncode == 0, ran.stderr
    for page in PAGES:
        [shown] = re.findall(r"\$ python run\.py\n(.*?)```", page.read_text(), re.DOTALL)
        lines, told = ran.stdout.splitlines(), shown.splitlines()
        assert [sorted(lines), lines[0], lines[-1]] == [sorted(told), told[0], told[-1]], (
            page
        )  # which began first may vary


@pytest.mark.parametrize("model", ["demo:", "anthropic:claude-sonnet-5-5"])
def test_the_example_says_why_where_the_model_gives_no_work_to_subagents(
    stack: Home, tmp_path: Path, model: str
) -> None:
    for name in ("run.py", "lead.toml"):
        text = (FOLDER / name).read_text()
        (tmp_path / name).write_text(text.replace("anthropic:claude-sonnet-5-5", model))
    ran = run(stack, tmp_path, tool("shell", command="echo 1 > numbers.txt"))
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
    assert "gave no work to subagents" in ran.stderr
