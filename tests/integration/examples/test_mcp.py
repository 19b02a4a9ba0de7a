"""The example of an MCP server does what its page shows."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("examples")]

FOLDER = Path(__file__).parents[3] / "examples" / "mcp"
BOOK = "The Left Hand of Darkness"
SCRIPT = (
    f'[[tool catalog__find {{"words": "darkness"}}]] [[tool catalog__lend {{"title": "{BOOK}", "reader": "Ged"}}]] '
    f"[[say {BOOK} was on the shelf and is now lent to Ged.]]"
)


def test_the_example_of_an_mcp_server_prints_what_its_page_shows(stack: Home, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(shutil.copytree(FOLDER, tmp_path / "mcp"))
    for name in ("catalog.py", "librarian.toml"):
        (folder / name).write_text((folder / name).read_text().replace("8765", str(port)))
    server = subprocess.Popen([sys.executable, "catalog.py"], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        eventually_sync(lambda: _listens(port), 90)
        ran = subprocess.run(
            [sys.executable, "run.py", SCRIPT],
            cwd=folder,
            env=stack.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        server.kill()
        server.wait()
    assert ran.returncode == 0, ran.stderr
    [shown] = re.findall(r"\$ python run\.py\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert ran.stdout == shown


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
