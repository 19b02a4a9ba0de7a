"""The example of races and forks prints what its page and the guide show; the command does the same for people."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.stack.homes import Home

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("example_race")]

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "race"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("race") / "home", OUTLIVE_MACHINES__ENABLED="on", OUTLIVE_LOOP__DEMO_PACE_S="0")
    try:
        home.up()
        yield home
    finally:
        home.stop()
        home.end_sandboxes()


def test_the_example_of_a_race_prints_what_its_page_and_the_guide_show(home: Home) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "host"],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in (EXAMPLE / "README.md", ROOT / "docs" / "guides" / "forks.md"):
        assert f"```text\n{done.stdout}```" in page.read_text(), page


def test_the_command_shows_a_race_side_by_side_and_keeps_the_chosen_one(home: Home) -> None:
    commit = "git add a && git -c user.name=a -c user.email=a@example.org commit -qm a"
    first = f"Run `git init -q . && echo one > a && {commit}`"
    begun = home.run("run", first, "--environment", "host", "--model", "demo:", "--detach")
    conversation = begun.stdout.strip()
    home.run("follow", conversation, "--until-idle")
    forked = home.run("fork", conversation, "--machine", "--json")
    copy = json.loads(forked.stdout)["machine"]
    shown = home.run("machine", "exec", copy, "-c", "cat a")
    assert (forked.returncode, shown.stdout) == (0, "one\n"), forked.stderr

    contestants = ("--model", "demo:first", "--model", "demo:second")
    raced = home.run("race", conversation, "Run `echo two > b; ls`", *contestants)
    assert raced.returncode == 0, raced.stderr
    assert "2 demo:second: done, 3 steps" in raced.stderr
    lines = raced.stdout.splitlines()
    rows = {line[:9].strip(): line[9:].split("  ") for line in lines if line[:9].strip()}
    assert {name: rows[name][-1].strip() for name in ("outcome", "steps", "cost", "changes")} == {
        "outcome": "done",
        "steps": "3",
        "cost": "unknown",
        "changes": "1 file changed, 1 insertion(+)",
    }
    race = raced.stdout.split("outlive choose ")[1].split()[0]
    chosen = home.run("choose", race, "2", "--json")
    facts = json.loads(chosen.stdout)
    assert [each["state"] for each in facts["contestants"]] == ["let_go", "chosen"]
    found = [home.run("machine", "show", each["machine"]).returncode for each in facts["contestants"]]
    assert found == [3, 0]
    assert "let go" in home.run("choose", race).stdout
    assert home.run("choose", race, "1").returncode == 1
    assert home.run("choose", "race_1").returncode == 3
    alone = home.run("race", conversation, "Alone", "--model", "demo:")
    assert (alone.returncode, "contestants" in alone.stderr) == (2, True)
