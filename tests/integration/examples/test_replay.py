"""The example of a replay runs, and says what its page and the guide show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("examples/replay/README.md", "docs/guides/replays.md")
OUTPUT = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What differs from run to run.
CHANGES = (
    (r"conv_[0-9a-f]+", "conv_…"),
    (r"[\d,.]+ s\b", "… s"),
    (r"[\d,]+ in, [\d,]+ out", "… in, … out"),
    (r" +", " "),
)


def same_each_time(text: str) -> str:
    for pattern, instead in CHANGES:
        text = re.sub(pattern, instead, text)
    return text


@pytest.mark.timeout(300)
def test_the_example_says_what_its_page_and_the_guide_show() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "replay" / "run.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        [shown] = OUTPUT.findall((ROOT / page).read_text())
        assert same_each_time(done.stdout) == same_each_time(shown), page
