"""The example of a batch runs, and says what its page and the guide show. Here with 100 items instead of 1,000: with
those it takes minutes. `make crash ARGS=batch` runs 1,000."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.stack.homes import Home

ROOT = Path(__file__).parents[3]
PAGES = ("examples/batch/README.md", "docs/guides/batches.md")
OUTPUT = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(600)
def test_the_example_says_what_its_page_and_the_guide_show(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", OUTLIVE_LOOP__DEMO_PACE_S="0")
    home.up()
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "batch" / "run.py"), "--items", "100"],
            env=home.environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    finally:
        home.stop()
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        [shown] = OUTPUT.findall((ROOT / page).read_text())
        assert done.stdout == shown.replace("1,000", "100").replace("500", "50"), page
