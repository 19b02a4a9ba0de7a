"""`outlive run`, `interrupt`, `agents` and `agent` against a real stack that answers with the demo model."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventually import eventually_sync
from integration.stack.homes import COMMAND, Home
from outlive.base import DeadlineError, InvalidError, OutliveError, UnavailableError
from outlive.cli.main import run
from outlive.cli.turns import _archived_if_refused
from outlive.machine.backends.screens.ghostty import GhosttyScreens

AGENT = """
name = "reviewer"
model = "demo:"
instructions = "Review the newest commit. Change nothing."
tools = ["shell", "read_file"]

[budget]
tokens = 1000
"""
WORDY = "What is lost when I close my laptop?"  # the demo model answers it at length
INTERFACE_EXAMPLE = """
from outlive import Client
client = Client()                                  # async: AsyncClient
conversation = client.conversations.create(agent="coder")
for event in conversation.run("Make the failing test pass"):
    print(event)
"""


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("turns") / "home", OUTLIVE_LOOP__DEMO_PACE_S="0.05")
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        home.environment.pop(key, None)
    home.up()
    yield home
    home.stop()


class Here(NamedTuple):
    """A command that was run in this process: the start of one costs more than most of what they do."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Here]


@pytest.fixture
def outlive(answering: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OUTLIVE_HOME", str(answering.path))

    def call(*arguments: str) -> Here:
        capsys.readouterr()
        code = run(arguments)
        return Here(code, *capsys.readouterr())

    return call


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def shown(outlive: Run, conversation: str) -> Any:
    return json.loads(outlive("show", conversation, "--json").stdout)


def test_a_turn_is_followed_to_its_end(outlive: Run) -> None:
    result = outlive("run", "Hello there")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Hello there" in result.stdout
    assert "demo model" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("done in ")


def test_with_json_each_event_is_a_line(outlive: Run) -> None:
    result = outlive("run", "Hello there", "--agent", "coder", "--json")
    events = lines_of(result.stdout)
    types = [event["type"] for event in events if event["seq"] is not None]
    assert types == ["message.sent", "turn.started", "step.started", "model.responded", "turn.finished"]
    assert any(event["type"] == "model.delta" for event in events)
    again = outlive("run", "And again", "--conversation", events[0]["conversation"], "--json")
    assert [event["data"]["text"] for event in lines_of(again.stdout) if event["type"] == "message.sent"] == [
        "And again"
    ]


def test_a_turn_that_fails_is_told_by_the_exit_code(outlive: Run) -> None:
    result = outlive("run", "Hello", "--model", "anthropic:some")
    assert result.returncode == 1
    assert "ANTHROPIC_API_KEY" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("failed")


def test_detached_it_prints_the_conversation_and_the_turn_ends_by_itself(outlive: Run) -> None:
    result = outlive("run", "Hello", "--detach")
    conversation = result.stdout.strip()
    assert (result.returncode, conversation[:5]) == (0, "conv_")
    eventually_sync(lambda: shown(outlive, conversation)["state"] == "idle", within_s=60, every_s=0.5)
    sent = json.loads(outlive("run", "Hello", "--detach", "--json").stdout)
    assert set(sent) == {"conversation", "message_id", "turn_id", "seq"}


def test_ctrl_c_detaches_and_says_how_to_go_on(answering: Home, outlive: Run) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", WORDY, "--json"],
        env=answering.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            conversation = json.loads(process.stdout.readline())["conversation"]
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert f"outlive follow {conversation} --after " in said
    assert f"outlive interrupt {conversation}" in said
    stopped = outlive("interrupt", conversation, "--reason", "enough")
    assert (stopped.returncode, stopped.stdout.strip()) == (0, f"interrupted: {conversation}")
    notes = [item for item in shown(outlive, conversation)["transcript"]["items"] if item["kind"] == "note"]
    assert (notes[0]["type"], notes[0]["data"]["reason"]) == ("turn.interrupted", "enough")
    nothing = outlive("interrupt", conversation)
    assert nothing.returncode == 1
    assert "nothing to interrupt" in nothing.stderr


def test_on_a_terminal_what_was_live_is_replaced_by_what_is_final(answering: Home) -> None:
    main, side = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "run", "Hello there"],
        env={**answering.environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=side,
        stderr=side,
    ) as process:
        os.close(side)
        try:
            drawn = b""
            while piece := _read(main):
                drawn += piece
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            os.close(main)
    text = drawn.decode()
    assert "\x1b[1;32m" in text, "in colour"
    assert "(going on)" in text, "live"
    screen = GhosttyScreens().new(100, 40)
    screen.feed(drawn)
    left = screen.text().splitlines()
    screen.close()
    assert left[-2].startswith("done in ")
    assert left[-1].startswith("go on with: outlive send conv_")
    assert not any("(going on)" in line for line in left)
    assert sum("demo model" in line for line in left) == 1, "said once"


def _read(main: int) -> bytes:
    try:
        return os.read(main, 65_536)
    except OSError:  # the other end is closed
        return b""


def test_what_cannot_be_run_is_refused_before_anything_is_made(outlive: Run, tmp_path: Path) -> None:
    before = _ids(outlive)
    for nothing in ("", " \n"):
        assert outlive("run", nothing).returncode == 2
    for arguments, code, said in (
        (("--repo", str(tmp_path)), 2, "not in a git repository"),
        (("--agent", "nobody"), 3, "no agent 'nobody'"),
        (("--conversation", "conv_" + "0" * 32), 3, "no conversation"),
        (("--conversation", "conv_" + "0" * 32, "--agent", "coder"), 2, "keeps its agent"),
    ):
        result = outlive("run", "Hello", *arguments)
        assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert _ids(outlive) == before


def _ids(outlive: Run) -> tuple[set[str], set[str]]:
    """Of the conversations that are there, and of the archived ones. Turns of other tests may still change the rest."""
    listed, archived = (json.loads(outlive("list", *more, "--json").stdout) for more in ((), ("--archived",)))
    return {each["id"] for each in listed["items"]}, {each["id"] for each in archived["items"]}


@pytest.mark.parametrize("more", [(), ("--detach",)])
def test_a_conversation_whose_first_message_is_refused_is_archived_again(outlive: Run, more: tuple[str, ...]) -> None:
    before, archived = _ids(outlive)
    refused = outlive("run", "Hello", "--model", "bogus", *more)
    assert (refused.returncode, refused.stdout, "bogus" in refused.stderr) == (2, "", True)
    now, archived_now = _ids(outlive)
    assert (now, len(archived_now - archived)) == (before, 1)


@pytest.mark.parametrize(
    ("error", "is_said", "is_left"),
    [
        (InvalidError("x.y", "No."), False, False),
        (InvalidError("x.y", "No."), True, True),
        (UnavailableError("x.y", "Away."), False, True),
        (DeadlineError("x.y", "Slow."), False, True),
    ],
)
def test_only_what_holds_no_message_for_certain_is_archived(
    outlive: Run, error: OutliveError, is_said: bool, is_left: bool
) -> None:
    made = outlive("new").stdout.strip()
    if is_said:
        outlive("send", made, "Hello")
    with pytest.raises(type(error)), _archived_if_refused(made):
        raise error
    assert (shown(outlive, made)["archived_at"] is None) is is_left


def test_a_repository_is_named_in_the_conversation(outlive: Run, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    (tmp_path / "a.txt").write_text("a\n")
    sent = json.loads(outlive("run", "Hello", "--repo", str(tmp_path), "--detach", "--json").stdout)
    assert list(shown(outlive, sent["conversation"])["metadata"]["repo"]) == ["blob"]
    url = "https://example.org/a.git"
    sent = json.loads(outlive("run", "Hello", "--repo", url, "--detach", "--json").stdout)
    assert shown(outlive, sent["conversation"])["metadata"]["repo"] == {"url": url}


def test_a_turn_is_replayed_live_and_shown_beside_what_it_was(outlive: Run) -> None:
    [was, *_] = lines_of(outlive("run", "Hello there", "--json").stdout)
    result = outlive("replay", was["conversation"], "--model", "demo:")
    assert (result.returncode, result.stderr) == (0, "")
    assert "a replay of turn_" in result.stdout
    assert "done in " in result.stdout, "it was followed"
    live, _, table = result.stdout.rpartition("done in ")
    assert live.count("message from") == 1, "what it shares with its recording is not shown again"
    assert "≠" not in table
    assert was["conversation"] in table
    document = json.loads(outlive("replay", was["conversation"], "--model", "demo:", "--at", "2", "--json").stdout)
    assert [row["same"] for row in document["rows"]] == [True]
    made = outlive("replay", was["conversation"], "--model", "demo:", "--detach").stdout.strip()
    assert json.loads(outlive("compare", made, "--json").stdout)["left"]["conversation"] == was["conversation"]
    assert outlive("compare", was["conversation"], made).returncode == 0


def test_what_cannot_be_replayed_or_compared_is_refused(outlive: Run) -> None:
    empty = outlive("new").stdout.strip()
    for arguments, code, said in (
        (("replay", "conv_" + "0" * 32, "--model", "demo:"), 3, "no conversation"),
        (("replay", empty, "--model", "demo:"), 1, "nothing to replay"),
        (("replay", empty, "--model", "nonsense"), 2, "nonsense"),
        (("compare", empty), 2, "is no replay"),
        (("compare", empty, empty), 3, "nothing to compare"),
    ):
        result = outlive(*arguments)
        assert (result.returncode, said in result.stderr) == (code, True), result.stderr


def test_a_replay_at_an_event_that_is_not_there_is_refused_as_a_fork_is(outlive: Run) -> None:
    [was, *_] = lines_of(outlive("run", "Hello there", "--json").stdout)
    head = shown(outlive, was["conversation"])["head"]
    for command in (("fork", was["conversation"]), ("replay", was["conversation"], "--model", "demo:")):
        refused = outlive(*command, "--at", "999")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"ends at event {head}; it has no event 999" in refused.stderr


def test_an_agent_is_applied_from_its_file_listed_and_shown(outlive: Run, tmp_path: Path) -> None:
    file = tmp_path / "reviewer.toml"
    file.write_text(AGENT)
    for _ in range(2):
        assert outlive("agent", "apply", str(file)).stdout == "reviewer version 1\n"
    table = outlive("agents").stdout.splitlines()
    assert {"NAME", "coder", "reviewer"} <= {line.split()[0] for line in table}  # others of this stack may be there too
    assert "(built in)" in table[1]
    agent = json.loads(outlive("agent", "show", "reviewer", "--json").stdout)
    assert (agent["version"], agent["budget"], agent["tools"]) == (1, {"tokens": 1000}, ["shell", "read_file"])
    assert "Review the newest commit." in outlive("agent", "show", "reviewer", "--version", "1").stdout
    events = lines_of(outlive("run", "Hello", "--agent", "reviewer", "--json").stdout)
    [started] = [event for event in events if event["type"] == "turn.started"]
    assert started["data"] == {"agent": "reviewer", "version": 1, "model": "demo:"}
    file.write_text(AGENT.replace('"read_file"', '"fly"'))
    refused = outlive("agent", "apply", str(file))
    assert (refused.returncode, "no tool 'fly'" in refused.stderr) == (2, True)
    file.write_text("name = ")
    assert outlive("agent", "apply", str(file)).returncode == 2


def test_a_budget_is_raised_only_where_it_is_limited(outlive: Run, tmp_path: Path) -> None:
    file = tmp_path / "saver.toml"
    file.write_text(AGENT.replace("reviewer", "saver").replace("[budget]", "[budget.conversation]"))
    assert outlive("agent", "apply", str(file)).returncode == 0
    made = outlive("new", "--agent", "saver").stdout.strip()
    for arguments, code, said in (
        (("--usd", "5"), 1, "limits of the conversation: tokens"),
        (("--steps", "0"), 2, "--steps"),
        (("--tokens", "-1"), 2, "--tokens"),
        (("--usd", "0", "--tokens", "5"), 2, "--usd"),
        (("--seconds", "nan"), 2, "--seconds"),
    ):
        refused = outlive("budget", made, *arguments)
        assert (refused.returncode, refused.stdout, said in refused.stderr) == (code, "", True), refused.stderr
    assert shown(outlive, made)["head"] == 1, "nothing is written"
    raised = json.loads(outlive("budget", made, "--tokens", "5", "--json").stdout)
    assert raised["limits"]["conversation"] == {"tokens": 1005}


def test_the_example_of_the_interface_runs_as_it_stands(answering: Home) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", INTERFACE_EXAMPLE],
        env=answering.environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "turn.finished" in done.stdout.splitlines()[-1]
