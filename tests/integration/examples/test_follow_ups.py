"""The example of follow-ups runs, and says what its page and the guide show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("examples/follow_ups/README.md", "docs/guides/follow-ups.md")
OUTPUT = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(300)
def test_the_example_of_follow_ups_says_what_its_page_and_the_guide_show() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "follow_ups" / "run.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        [shown] = OUTPUT.findall((ROOT / page).read_text())
        assert done.stdout == shown, page
