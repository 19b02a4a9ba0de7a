"""The Python of the guides runs as it stands there, against a real stack."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.stack.homes import Home

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("guides") / "home", OUTLIVE_LOOP__ENABLED="false")
    home.up()
    yield home
    home.stop()


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("agents") / "home", OUTLIVE_LOOP__DEMO_PACE_S="0")
    home.up()
    yield home
    home.stop()


@pytest.mark.parametrize(("name", "blocks"), [("python.md", 7), ("follow.md", 2)])
def test_the_examples_of_a_guide_work(running: Home, name: str, blocks: int) -> None:
    _run(running, name, blocks)


def test_the_examples_about_agents_work_where_somebody_answers(answering: Home) -> None:
    assert "turn.finished" in _run(answering, "agents.md", 1)
    assert "[True]" in _run(answering, "replays.md", 1)


# What the development mode says of a busy machine, and not of the guide.
_SLOW = re.compile(r"^Executing <.*> took [\d.]+ seconds\n", re.MULTILINE)


def _run(home: Home, name: str, blocks: int) -> str:
    found = BLOCK.findall((GUIDES / name).read_text())
    assert len(found) == blocks
    result = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", "\n".join(found)],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, _SLOW.sub("", result.stderr)) == (0, "")
    return result.stdout
