"""`outlive demo` where machines can run: the agent makes the failing test pass, whatever happens to its worker and to a
client that follows."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually_sync
from integration.demo.test_demo import WITHIN_S, pids_of, processes_of, run_demo
from integration.stack.homes import Home

FIX = "+    return -(-entries // size)"
NO_KEYS = {"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}


@pytest.fixture
def home(home: Home) -> Home:
    home.environment |= {"OUTLIVE_MACHINES__ENABLED": "on", "OUTLIVE_LOOP__DEMO_PACE_S": "0", **NO_KEYS}
    return home


def story_of(home: Home, conversation: str) -> list[tuple[Any, ...]]:
    """What was said and done, without what differs from run to run: ids, times, attempts."""
    story: list[tuple[Any, ...]] = []
    for event in home.get(f"/v1/conversations/{conversation}/events?limit=1000")["items"]:
        data = event["data"]
        match event["type"]:
            case "model.responded":
                story.append((data["text"], [(call["name"], call["arguments"]) for call in data["tool_calls"]]))
            case "tool.finished":
                output = re.sub(r"in \d+\.\d+s|art_\w+", "", data["output"])
                story.append((data["outcome"], data["exit_code"], output))
            case "turn.finished":
                story.append((data["outcome"], data["reason"]))
    # Calls that are independent end in any order.
    return sorted(story, key=str)


def kill_worker(home: Home) -> None:
    """And wait until there is another one."""
    worker = home.pid_of("worker")
    home.kill(worker)
    eventually_sync(lambda: home.pid_of("worker") != worker, WITHIN_S)


def kill_worker_in_an_answer(home: Home) -> None:
    """The screen is a little late, and answers are short: the log says when one is being given."""
    [newest, *_] = home.get("/v1/conversations")["items"]

    def is_answering() -> bool:
        *_, last = home.get(f"/v1/conversations/{newest['id']}/events?limit=1000")["items"]
        return (last["type"], last["data"].get("kind")) == ("step.started", "model")

    eventually_sync(is_answering, WITHIN_S, every_s=0.01)
    kill_worker(home)


def kill_followers(home: Home) -> int:
    found = [pid for pid, command in pids_of(home).items() if " follow " in command]
    for pid in found:
        home.kill(pid)
    return len(found)


@pytest.mark.timeout(300)
def test_the_agent_makes_the_test_pass_in_its_machine_and_all_is_stopped(home: Home) -> None:
    result = run_demo(home, "--exit")
    assert result.returncode == 0, result.stdout + result.stderr
    shown = result.stdout
    assert "built-in demo model" in shown
    failed, mended = shown.index("AssertionError: 3 != 4"), shown.index("Done: all 7 tests pass.")
    assert failed < shown.index(FIX) < mended < shown.index("The turn is done.")
    cut = re.search(r"second client .* was CUT OFF .* Its position: (\S+)", shown)
    assert cut is not None
    back = re.search(rf"RESUMES after {re.escape(cut[1])}; it missed (\d+) events", shown)
    assert back is not None
    assert int(back[1]) > 0
    assert cut.start() < shown.index(FIX) < shown.index("The second client's screen and the server: identical")
    assert cut.start() < back.start() < mended
    assert re.search(r"attach term_\w+ .*Ctrl-\] d leaves it", shown)
    assert "answer of demo:" not in shown
    assert re.search(r"API: http://127\.0\.0\.1:\d+", shown)
    assert "Traceback" not in result.stderr
    eventually_sync(lambda: processes_of(home) == [], WITHIN_S)
    # The machine sleeps, and is what the agent left.
    home.up()
    [machine] = home.get("/v1/machines")["items"]
    assert machine["state"] == "hibernated"
    ended = home.post(f"/v1/machines/{machine['id']}/exec", {"command": "git diff; python3 -B -m unittest"})
    assert FIX in ended["stdout"]
    assert (ended["exit_code"], ended["stderr"].splitlines()[-1]) == (0, "OK")
    [conversation] = home.get("/v1/conversations")["items"]
    [artifact] = home.get(f"/v1/conversations/{conversation['id']}/artifacts")["items"]
    assert (artifact["title"], artifact["media_type"]) == ("The fix", "text/x-diff")


@pytest.mark.timeout(400)
def test_a_worker_that_is_killed_in_the_middle_changes_nothing_but_the_time(home: Home) -> None:
    home.up(OUTLIVE_LOOP__DEMO_PACE_S="0.05")
    undisturbed = json.loads(run_demo(home, "--json").stdout)
    assert undisturbed["outcome"] == "done"
    assert (undisturbed["is_identical"], undisturbed["missed"] > 0) == (True, True)

    for _ in range(3):  # an answer may have ended between the look and the kill: then nothing is mended
        with home.start("demo") as process:
            assert process.stdout is not None
            # In the middle of two answers: before the change was made, and after the tests were run again.
            for moment in ("gets 3 and wants 4", "Ran 7 tests"):
                assert any(moment in line for line in process.stdout)
                kill_worker_in_an_answer(home)
            followers = kill_followers(home)  # the second client is back by then; it is not told to come again
            rest = process.stdout.read()
            assert process.wait() == 0, rest
        assert followers == 1
        assert "The turn is done." in rest
        assert "The second client's screen and the server: identical" in rest
        [disturbed, *_] = home.get("/v1/conversations")["items"]
        assert story_of(home, disturbed["id"]) == story_of(home, undisturbed["conversation"])
        events = home.get(f"/v1/conversations/{disturbed['id']}/events?limit=1000")["items"]
        recovered = [event["data"] for event in events if event["type"] == "turn.recovered"]
        if recovered:
            break
    assert recovered


@pytest.mark.timeout(300)
def test_ctrl_c_while_the_second_client_is_away_or_back_leaves_nothing(home: Home) -> None:
    for moment in ("was CUT OFF", "RESUMES"):
        with home.start("demo") as process:
            assert process.stdout is not None
            assert any(moment in line for line in process.stdout)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(WITHIN_S) == 130
        eventually_sync(lambda: processes_of(home) == [], WITHIN_S)


def test_the_sample_project_is_the_same_bundle_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlive.cli.sample_repo import bundle_sample

    first = bundle_sample()
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert bundle_sample() == first
    monkeypatch.delenv("GIT_DIR")
    (tmp_path / "sample.bundle").write_bytes(first)
    subprocess.run(["git", "clone", "--quiet", "sample.bundle", "clone"], cwd=tmp_path, check=True)
    ran = subprocess.run(
        ["python3", "-B", "-m", "unittest"], cwd=tmp_path / "clone", capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1] == "FAILED (failures=1)"
