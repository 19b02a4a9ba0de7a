"""`outlive attach` as a person uses it: on a real PTY, against a real API and a node with real terminals."""

import base64
import io
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import anyio.to_thread
import pytest

from eventually import eventually
from integration.api.machines import MachineApi, open_machine_api
from integration.api.stack import TOKEN, serve
from integration.api.terminals import open_terminal, principal
from integration.cli.seat import WITHIN_S, open_seat
from integration.stack.homes import COMMAND
from outlive.cli import main

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


def _as(api: MachineApi, token: str = TOKEN) -> dict[str, str]:
    return {"OUTLIVE_URL": api.api.url, "OUTLIVE_TOKEN": token}


async def _facts(api: MachineApi, terminal: str) -> dict[str, Any]:
    answer = await api.http.get(f"/v1/terminals/{terminal}")
    assert answer.status_code == 200, answer.text
    facts: dict[str, Any] = answer.json()
    return facts


async def _run(api: MachineApi, *arguments: str, typed: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command in a process of its own if it minds its input; else here, which saves the start of a program."""

    def run_apart() -> "subprocess.CompletedProcess[bytes]":
        command, environment = [*COMMAND, *arguments], {**os.environ, **_as(api)}
        return subprocess.run(command, env=environment, input=typed, capture_output=True, timeout=100, check=False)

    def run_here() -> "subprocess.CompletedProcess[bytes]":
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with mock.patch.dict(os.environ, _as(api)), redirect_stdout(out), redirect_stderr(err):
            code = main.run(arguments)
        out.flush()
        return subprocess.CompletedProcess(arguments, code, out.buffer.getvalue(), err.getvalue().encode())

    return await anyio.to_thread.run_sync(run_apart if arguments[0] == "attach" else run_here)


async def _document(api: MachineApi, *arguments: str) -> Any:
    done = await _run(api, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_person_sits_down_types_resizes_and_leaves_the_terminal_as_it_was(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo welcome; while read x; do stty size; done")
    async with open_seat(_as(api), "attach", terminal, cols=100, rows=30) as seat:
        await seat.sees("welcome")
        await seat.reads_title("you type")
        seat.type(b"\r")
        await seat.sees("30 100")
        seat.resize(120, 40)
        await eventually(lambda: _has_size(api, terminal, 120, 40), within_s=WITHIN_S)
        seat.type(b"\x1dd")
        assert await seat.left() == 0
        assert seat.is_restored
        await seat.sees("detached; it goes on")
    assert (await _facts(api, terminal))["state"] == "open"


async def _has_size(api: MachineApi, terminal: str, cols: int, rows: int) -> bool:
    facts = await _facts(api, terminal)
    return (facts["cols"], facts["rows"]) == (cols, rows)


async def test_hostile_output_reaches_neither_the_person_nor_the_program(api: MachineApi) -> None:
    attack = r"printf '\033[6n\033[c\033]52;c;ZXZpbA==\007\033]0;evil\007\033P$qm\033\\\033[21t\005'"
    terminal = await open_terminal(
        api, command=f"stty -echo raw; echo ready; head -c1 >/dev/null; {attack}; echo done; timeout 1 cat | od -c"
    )
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.sees("ready")
        seat.type(b"x")
        await seat.sees("done")
        await seat.sees("0000000")
        assert "033" not in seat.screen.text, "the terminal answered into the program"
        assert seat.screen.answers == []
        assert [effect for effect in seat.screen.effects if effect != "title_changed"] == []
        await seat.reads_title("evil — outlive: you type")
        assert await seat.left() == 0
        assert seat.is_restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_the_terminal_as_it_was(api: MachineApi, number: signal.Signals) -> None:
    terminal = await open_terminal(api, command=r"printf '\033[?1049h\033[?1000h\033[?25lfull'; sleep 1000")
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.sees("full")
        assert not seat.is_restored
        seat.process.send_signal(number)
        assert await seat.left() == 128 + number
        assert seat.is_restored


async def test_the_exit_code_of_the_program_is_that_of_attach(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="read x; exit 7")
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.reads_title("you type")
        seat.type(b"\r")
        assert await seat.left() == 7
        await seat.sees("ended with exit code 7")
        assert seat.is_restored


async def test_a_person_takes_over_from_another_and_gives_back(api: MachineApi) -> None:
    ana = await principal(api.api, "ana", "person")
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with open_seat(_as(api), "attach", terminal) as first:
        await first.reads_title("you type")
        async with open_seat(_as(api, ana), "attach", terminal, cols=40, rows=10) as second:
            await second.sees("ready")
            await second.reads_title("other size")
            second.type(b"refused\r")
            await second.sees("types here")
            second.type(b"\x1dt")
            await second.reads_title("you type")
            await first.reads_title("ana (person) types")
            second.type(b"by ana\r")
            await first.sees("by ana")
            await eventually(lambda: _has_size(api, terminal, 40, 10), within_s=WITHIN_S)
            second.type(b"\x1dy")
            await first.reads_title("nobody types")
            first.type(b"by owner\r")
            await second.sees("by owner")
            assert "refused" not in first.screen.text
            second.type(b"\x1dd")
            assert await second.left() == 0
            assert second.is_restored


async def test_attach_comes_back_when_the_node_was_away(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.reads_title("you type")
        api.node.terminals.is_away = True
        api.node.terminals.cut()
        await seat.reads_title("machine is away")
        api.node.terminals.is_away = False
        seat.type(b"still here\r")
        await seat.sees("still here")


async def test_what_is_typed_while_the_node_is_away_arrives_whatever_is_shown_meanwhile(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.reads_title("you type")
        api.node.terminals.is_away = True
        api.node.terminals.cut()
        await seat.sees("is waited for")
        seat.type(b"typed meanwhile\r\x1d")
        await seat.sees("d detach")
        seat.type(b"x")
        await seat.sees("is waited for")
        api.node.terminals.is_away = False
        await seat.sees("typed meanwhile")
        await eventually(lambda: "outlive:" not in seat.screen.text, within_s=WITHIN_S)
        assert seat.screen.text.split() == ["ready", "typed", "meanwhile"]
        assert "away" not in seat.title


async def test_one_who_only_looks_on_changes_no_size_also_where_they_type_elsewhere(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    async with open_seat(_as(api), "attach", terminal, cols=90, rows=30) as typing:
        await eventually(lambda: _has_size(api, terminal, 90, 30), within_s=WITHIN_S)
        async with open_seat(_as(api), "attach", terminal, "--observe", cols=40, rows=10) as watching:
            await watching.reads_title("you type elsewhere")
            await watching.reads_title("other size")
            watching.type(b"x")
            await watching.sees("you type elsewhere")
            typing.type(b"seen\r")
            await watching.sees("seen")
            assert await _has_size(api, terminal, 90, 30)


async def test_attach_goes_on_by_itself_at_a_server_that_was_started_elsewhere(api: MachineApi, tmp_path: Path) -> None:
    def point_to(url: str) -> None:
        (tmp_path / "endpoint.json").write_text(json.dumps({"url": url, "token": TOKEN}))

    terminal = await open_terminal(api, command="stty -echo; echo ready; exec cat")
    parts = replace(api.api.parts, closing=anyio.Event())
    environment = {"OUTLIVE_HOME": str(tmp_path), "OUTLIVE_URL": "", "OUTLIVE_TOKEN": ""}
    async with serve(parts) as other:
        point_to(other.url)
        async with open_seat(environment, "attach", terminal) as seat:
            await seat.reads_title("you type")
            parts.closing.set()
            await seat.reads_title("connection lost")
            seat.type(b"meanwhile\r")
            point_to(api.api.url)
            await seat.reads_title("you type")
            await seat.sees("meanwhile")
            seat.type(b"and on\r")
            await seat.sees("and on")
            await eventually(lambda: "outlive:" not in seat.screen.text, within_s=WITHIN_S)
            assert seat.screen.text.split() == ["ready", "meanwhile", "and", "on"]


async def test_what_a_menu_has_covered_is_seen_again_and_nothing_scrolls_out_twice(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="seq 1 200; stty -echo; exec cat")
    async with open_seat(_as(api), "attach", terminal) as seat:
        await seat.sees("200")
        await seat.reads_title("you type")
        text, scrolled = seat.screen.text, seat.screen.scrollback
        assert scrolled >= 176
        seat.type(b"\x1d")
        await seat.sees("d detach")
        seat.type(b"x")
        await eventually(lambda: seat.screen.text == text, within_s=WITHIN_S)
        assert seat.screen.scrollback == scrolled
        assert (await _facts(api, terminal))["lease"]["name"] == "owner"


async def test_pipes_work_in_and_out(api: MachineApi) -> None:
    terminal = await open_terminal(
        api, command="stty -echo; for n in 1 2; do read x; printf '<%s>\\033[6n' \"$x\"; done"
    )
    done = await _run(api, "attach", terminal, "--linger", "60", typed=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, b"<one>\x1b[6n<two>\x1b[6n"), "the terminal's own bytes"
    whole = await _run(api, "attach", terminal, "--from", "0", "--json")
    lines = [json.loads(line) for line in whole.stdout.splitlines()]
    assert lines[0]["status"]["terminal"] == terminal
    assert b"".join(base64.b64decode(line["output"]) for line in lines if "output" in line) == done.stdout
    assert lines[-1] == {"exit": {"exit_code": 0, "signal": None, "reason": None}}


async def test_a_pipe_that_has_ended_leaves_when_the_terminal_is_silent(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="stty -echo; exec cat")
    done = await _run(api, "attach", terminal, "--linger", "0.1", typed=b"hello\n")
    assert done.returncode == 0
    await eventually(lambda: _shows(api, terminal, "hello"), within_s=WITHIN_S)


async def test_one_who_looks_on_from_a_pipe_types_nothing_and_leaves_by_its_linger(api: MachineApi) -> None:
    terminal = await open_terminal(api, command="echo seen; exec cat")
    await eventually(lambda: _shows(api, terminal, "seen"), within_s=WITHIN_S)
    looking_on = ("attach", terminal, "--observe", "--from", "0", "--linger", "2")
    for given in (b"", b"not typed\n"):
        done = await _run(api, *looking_on, typed=given)
        assert (done.returncode, done.stdout) == (0, b"seen\r\n")
    done = await _run(api, "attach", terminal, "--linger", "0.1")
    assert done.returncode == 0, "nothing came in, and it was said when to leave"
    assert not await _shows(api, terminal, "not typed")


async def _shows(api: MachineApi, terminal: str, text: str) -> bool:
    shown = await api.http.get(f"/v1/terminals/{terminal}/screen")
    return text in shown.text


async def test_what_is_wrong_is_said_before_the_screen_is_touched(api: MachineApi) -> None:
    unknown = await _run(api, "attach", "term_" + "0" * 32)
    assert unknown.returncode == 3
    assert unknown.stderr.startswith(b"error: ")
    assert (await _run(api, "attach", "nonsense")).returncode == 3
    assert (await _run(api, "attach", "term_" + "0" * 32, "--observe", "--take")).returncode == 2


async def test_a_terminal_from_its_opening_to_its_end(api: MachineApi) -> None:
    machine = await api.create()
    opened = await _document(api, "terminal", "open", machine, "--command", "stty -echo; cat", "--cols", "90")
    terminal = opened["id"]
    assert (opened["state"], opened["cols"], opened["rows"]) == ("open", 90, 24)
    assert (await _document(api, "terminal", "take", terminal))["lease"]["name"] == "owner"
    assert (await api.http.post(f"/v1/terminals/{terminal}/input", json={"data": "hello\n"})).status_code == 200
    await eventually(lambda: _shows(api, terminal, "hello"), within_s=WITHIN_S)
    assert (await _document(api, "terminal", "yield", terminal))["lease"] is None
    await principal(api.api, "ana", "person")
    assert (await _document(api, "terminal", "grant", terminal, "ana"))["lease"]["name"] == "ana"
    assert (await _document(api, "terminal", "screen", terminal))["text"] == "hello"
    account = await _run(api, "terminal", "account", terminal, "--from", "0")
    assert b"owner typed: hello" in account.stdout
    listed = await _run(api, "terminals", machine)
    assert listed.stdout.splitlines()[0].split() == b"ID STATE SIZE TYPES HERE CREATED TITLE".split()
    assert terminal.encode() in listed.stdout
    assert b"ana" in (await _run(api, "terminal", "show", terminal)).stdout
    recording = await _run(api, "terminal", "record", terminal)
    assert json.loads(recording.stdout.splitlines()[0])["version"] == 3
    assert (await _document(api, "terminal", "close", terminal))["state"] == "closed"
