"""The commands of conversations against a real stack: documents, exit codes, and text that is harmless."""

import json
import os
import pty
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually, eventually_sync
from integration.client.writing import open_turn
from integration.stack.homes import COMMAND, Home
from outlive.base import new_step_id
from outlive.conversation.events import ModelResponded

pytestmark = pytest.mark.anyio

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e dangerous"
NOBODY = "conv_" + "0" * 32


def done(home: Home, *arguments: str) -> str:
    result = home.run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def document(home: Home, *arguments: str) -> Any:
    text = done(home, *arguments, "--json")
    assert "\n" not in text, "one document"
    return json.loads(text)


def test_a_conversation_from_its_making_to_its_archive(running: Home) -> None:
    made = document(running, "new", "--title", "Whole life", "--agent", "coder")
    assert (made["title"], made["agent"], made["state"], made["head"]) == ("Whole life", "coder", "idle", 1)
    id = made["id"]
    sent = document(running, "send", id, "Hello there")
    assert sent["seq"] == 2
    shown = document(running, "show", id)
    assert [item["text"] for item in shown["transcript"]["items"]] == ["Hello there"]
    assert shown["head"] == shown["transcript"]["head"] == 2
    fork = document(running, "fork", id, "--at", "1")
    assert fork["parent"] == {"conversation": id, "at": 1}
    assert [item["id"] for item in document(running, "list", "--query", "hello there")["items"]] == [id]
    assert document(running, "archive", id)["archived_at"] is not None
    assert id not in [item["id"] for item in document(running, "list")["items"]]
    assert id in [item["id"] for item in document(running, "list", "--archived")["items"]]
    refused = running.run("send", id, "more", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["code"] == "conversation.archived"


def test_the_plain_forms_are_made_for_scripts(running: Home) -> None:
    id = done(running, "new", "--title", "Scripted")
    assert id.startswith("conv_")
    assert len(id.splitlines()) == 1
    assert done(running, "fork", id).startswith("conv_")
    assert done(running, "send", id, "one").startswith("sent: msg_")
    piped = subprocess.run(
        [*COMMAND, "send", id, "-"],
        env=running.environment,
        input="from a pipe",
        text=True,
        capture_output=True,
        check=True,
    )
    assert piped.stdout.startswith("sent: msg_")
    assert "from a pipe" in done(running, "show", id)
    assert done(running, "list", "--limit", "1").splitlines()[0].split() == "ID STATE EVENTS CHANGED TITLE".split()
    assert len(done(running, "list", "--limit", "1").splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", NOBODY), 3),
        (("show", "nonsense"), 3),
        (("follow", NOBODY), 3),
        (("send", NOBODY, "hello"), 3),
        (("fork", NOBODY), 3),
        (("archive", NOBODY), 3),
        (("show",), 2),
        (("list", "--limit", "0"), 2),
        (("list", "--nonsense"), 2),
    ],
)
def test_what_cannot_be_done_is_told_by_exit_code_sentence_and_document(
    running: Home, arguments: tuple[str, ...], code: int
) -> None:
    result = running.run(*arguments, "--json")
    assert result.returncode == code
    assert result.stderr.startswith("error: ")
    assert set(json.loads(result.stdout)) >= {"kind", "code", "detail"}


def test_a_position_that_is_none_is_wrong_use(running: Home) -> None:
    id = done(running, "new")
    assert running.run("follow", id, "--after", "nonsense").returncode == 2
    other = done(running, "new")
    assert running.run("follow", id, "--after", f"1-{other[-8:]}-1").returncode == 2


def test_one_without_a_token_is_told_what_to_set(running: Home) -> None:
    result = running.run("list", "--json", OUTLIVE_URL=running.endpoint["url"])
    assert (result.returncode, json.loads(result.stdout)["code"]) == (4, "token.missing")
    assert "set OUTLIVE_TOKEN" in result.stderr
    assert "Authorization" not in result.stderr + result.stdout


def test_an_unknown_token_is_denied(running: Home) -> None:
    url = running.endpoint["url"]
    result = running.run("list", "--json", OUTLIVE_URL=url, OUTLIVE_TOKEN="wrong")
    assert result.returncode == 4
    assert json.loads(result.stdout)["kind"] == "unauthenticated"
    assert "wrong" not in result.stdout + result.stderr


def test_without_a_stack_the_commands_say_how_to_start_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "nothing")
    result = home.run("list", "--json")
    assert result.returncode == 5
    assert "outlive up" in result.stderr
    home.path.mkdir()
    (home.path / "endpoint.json").write_text('{"url": "http://127.0.0.1:1", "token": "t"}')
    result = home.run("list")
    assert result.returncode == 5
    assert "outlive up" in result.stderr


@pytest.mark.parametrize("command", "new list show send follow fork archive demo".split())
def test_help_comes_with_examples(command: str, running: Home) -> None:
    assert f"outlive {command}" in done(running, command, "--help").split("Example")[1]


# ── following ──


async def test_follow_shows_everything_and_leaves_when_idle(running: Home) -> None:
    id = done(running, "new")
    turn_id = document(running, "send", id, "Hello")["turn_id"]
    async with open_turn(running.path, id, turn_id) as turn:
        await turn.begin()
        await turn.answer(1, dead_attempts=2)
        await turn.tool(1)
        await turn.finish()
    lines = [json.loads(line) for line in done(running, "follow", id, "--json", "--until-idle").splitlines()]
    head = document(running, "show", id)["head"]
    assert [line["seq"] for line in lines if line["seq"]] == list(range(1, head + 1))
    assert [line["attempt"] for line in lines if line["type"] == "step.rewound"] == [2, 3]
    middle = lines[4]["position"]
    rest = done(running, "follow", id, "--json", "--until-idle", "--after", middle).splitlines()
    assert [json.loads(line) for line in rest] == lines[5:]
    assert done(running, "follow", id, "--json", "--until-idle", "--after", lines[-1]["position"]) == ""
    text = done(running, "follow", id, "--until-idle")
    assert "… attempt 2 of the step begins, forget the text above" in text
    assert text.count("1: Grüße") == 1


def test_ctrl_c_leaves_with_the_position_to_go_on_from(running: Home) -> None:
    id = done(running, "new")
    done(running, "send", id, "Hello")
    with subprocess.Popen(
        [*COMMAND, "follow", id, "--json"],
        env=running.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        positions = [json.loads(process.stdout.readline())["position"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "")
    assert f"outlive follow {id} --after {positions[-1]}" in told
    done(running, "send", id, "again")
    with running.start("follow", id, "--json", "--after", positions[-1]) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 3


def test_a_reader_that_leaves_ends_the_follower_quietly(running: Home) -> None:
    id = done(running, "new")
    done(running, "send", id, "one")
    with subprocess.Popen(
        [*COMMAND, "follow", id, "--json"],
        env=running.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        eventually_sync(lambda: _say_until_it_leaves(running, id, process), within_s=30)
        assert process.stderr.read() == ""
    assert process.returncode == 0


def _say_until_it_leaves(home: Home, id: str, process: "subprocess.Popen[str]") -> bool:
    """A process notices that its reader is gone when it writes."""
    home.call("POST", f"/v1/conversations/{id}/messages", {"text": "more"})
    return process.poll() is not None


async def test_hostile_text_reaches_no_output_raw(running: Home) -> None:
    id = done(running, "new")
    turn_id = document(running, "send", id, HOSTILE.replace("\x00", ""))["turn_id"]
    async with open_turn(running.path, id, turn_id) as turn:
        await turn.begin()
        await turn.answer(1, pieces=(HOSTILE,))
        await turn.finish()
    for arguments in (("show", id), ("follow", id, "--until-idle"), ("list",), ("show", id, "--json")):
        shown = done(running, *arguments)
        assert not any(character in shown for character in "\x1b\x9b\x07\u202e"), arguments
        if arguments != ("list",):
            assert "dangerous" in shown
    raw = json.loads(done(running, "follow", id, "--until-idle", "--json").splitlines()[1])
    assert raw["data"]["text"] == HOSTILE


class Terminal:
    """A command with a terminal of its own; `screen` is all that was written to it so far."""

    def __init__(self, home: Home, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**home.environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self._written = b""

    @property
    def screen(self) -> str:
        try:
            while chunk := os.read(self.master, 65536):
                self._written += chunk
        except OSError:
            pass  # nothing more now, or the other side is gone
        return self._written.decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


async def test_a_terminal_takes_back_the_text_of_a_dead_attempt(running: Home) -> None:
    id = done(running, "new")
    turn_id = document(running, "send", id, "Hello")["turn_id"]
    terminal = Terminal(running, "follow", id, "--until-idle")
    try:
        async with open_turn(running.path, id, turn_id) as turn:
            await turn.begin()
            step = new_step_id()
            writer = await turn.start(step, 1)
            writer.delta("words of the dead")
            await eventually(lambda: "words of the dead" in terminal.screen, within_s=20)
            writer = await turn.start(step, 2)
            writer.delta("words that stay")
            await eventually(lambda: "words that stay" in terminal.screen, within_s=20)
            await writer.seal(ModelResponded(text="words that stay, all of them", model="demo:"))
            await turn.finish()
        await eventually(lambda: terminal.process.poll() is not None, within_s=20)
        screen = terminal.screen
        assert terminal.process.returncode == 0
        after_rewind = screen.split("attempt 2 of the step begins")[1]
        assert "words of the dead" not in after_rewind
        assert "words that stay, all of them" in after_rewind
        # The lines that showed the dead words were erased before anything else was drawn over them.
        between = screen.split("words of the dead")[-1].split("attempt 2 of the step begins")[0]
        assert "\x1b[2K" in between
    finally:
        terminal.close()


@pytest.mark.parametrize("command", [("list",), ("list", "--json"), ("status",), ("--help",)])
def test_a_reader_that_does_not_wait_makes_no_noise(running: Home, command: tuple[str, ...]) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    try:
        result = subprocess.run(
            [*COMMAND, *command],
            env=running.environment,
            stdout=write_fd,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_fd)
    assert (result.returncode in (0, 141), result.stderr) == (True, b"")


def test_the_version_is_told(running: Home) -> None:
    assert done(running, "--version") == f"outlive {version('outlive')}"
