"""`outlive batch run`, `retry` and `status` against a real stack; the pretend provider answers, and counts."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import pytest

from eventually import eventually
from integration.client.writing import open_turn
from integration.stack.homes import Home
from outlive.cli.main import run
from outlive.conversation.events import ApprovalDecided, ApprovalRequested
from outlive.testing.pretend_provider import ProviderProcess, Trouble, provider_process

MODEL = "openai:pretend"
APPROVAL = "appr_" + "1" * 32


class Here(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Here]


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with provider_process() as provider:
        yield provider


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory, provider: ProviderProcess) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("batches") / "home", **provider.environment())
    home.up()
    yield home
    home.stop()


@pytest.fixture
def outlive(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answering: Home) -> Run:
    monkeypatch.setenv("OUTLIVE_HOME", str(answering.path))
    return _caller(capsys)


def _caller(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Here:
        capsys.readouterr()
        code = run(arguments)
        return Here(code, *capsys.readouterr())

    return call


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def write(path: Path, prompts: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps({"id": id, "prompt": prompt}) + "\n" for id, prompt in prompts.items()))
    return path


def conversations(home: Home, folder: Path) -> list[dict[str, Any]]:
    """Those of the batch, archived or not."""
    batch = json.loads((folder / "batch.json").read_text())["batch"]
    found = [
        item
        for archived in ("true", "false")
        for item in home.get(f"/v1/conversations?limit=1000&archived={archived}")["items"]
    ]
    return [item for item in found if item["metadata"].get("batch") == batch and item["parent"] is None]


def test_a_batch_is_run_retried_and_never_asked_for_twice(
    outlive: Run, answering: Home, provider: ProviderProcess, tmp_path: Path
) -> None:
    prompts = {f"i{n}": f"[[say Answer {n}.]] of {tmp_path.name}" for n in range(6)}
    file = write(tmp_path / "prompts.jsonl", prompts)
    folder = tmp_path / "out"
    begun = ("batch", "run", str(file), "--model", MODEL, "--out", str(folder), "--parallel", "3")
    provider.arm(Trouble("error", status=400, message="no such thing", match="Answer 4."))

    first = outlive(*begun, "--every", "2", "--json")
    assert (first.returncode, first.stderr) == (1, "")
    told = json.loads(first.stdout)
    assert (told["items"], told["done"], told["failed"], told["waiting"], told["left"]) == (6, 5, 1, 0, 0)
    results = lines(folder / "results.jsonl")
    assert {line["item"]: line["answer"] for line in results} == {
        f"i{n}": f"Answer {n}." for n in range(6) if n != 4
    }, "each once, in whatever order"
    assert all(line["usage"]["output_tokens"] > 0 for line in results)
    [failure] = lines(folder / "failures.jsonl")
    assert (failure["item"], failure["outcome"], "no such thing" in failure["reason"]) == ("i4", "failed", True)
    calls = len(provider.calls())

    again = outlive(*begun)
    assert (again.returncode, len(provider.calls())) == (1, calls), "what failed is only tried again when asked"
    assert "5 done, 1 failed" in again.stdout
    assert f"outlive batch retry {folder}" in again.stdout
    assert "no such thing" in outlive("batch", "status", str(folder)).stdout

    retried = outlive("batch", "retry", str(folder))
    assert (retried.returncode, len(provider.calls())) == (0, calls + 1)
    assert sorted(line["item"] for line in lines(folder / "results.jsonl")) == sorted(prompts)
    assert lines(folder / "failures.jsonl") == []
    assert len(conversations(answering, folder)) == 7, "a new one for the second attempt"
    status = json.loads(outlive("batch", "status", str(folder), "--json").stdout)
    assert (status["done"], status["failed"], status["left"]) == (6, 0, 0)


def test_a_batch_that_lost_its_record_finds_all_on_the_server_also_when_its_keys_are_long_gone(
    outlive: Run, answering: Home, provider: ProviderProcess, tmp_path: Path
) -> None:
    file = write(tmp_path / "prompts.jsonl", {f"i{n}": f"[[say {n} of]] {tmp_path.name}" for n in range(4)})
    folder = tmp_path / "prompts.jsonl.batch"
    assert outlive("batch", "run", str(file), "--model", MODEL).returncode == 0
    first = {line["item"]: line["conversation"] for line in lines(folder / "results.jsonl")}
    calls = len(provider.calls())
    answering.call("DELETE", f"/v1/conversations/{first['i1']}")  # somebody tidied up
    answering.post(f"/v1/conversations/{first['i2']}/fork", {})  # which has the same metadata
    (folder / "results.jsonl").unlink()
    with sqlite3.connect(answering.path / "outlive.db", timeout=60) as database:
        assert database.execute("DELETE FROM idempotency_keys").rowcount > 0
    database.close()

    assert outlive("batch", "run", str(file)).returncode == 0
    assert {line["item"]: line["conversation"] for line in lines(folder / "results.jsonl")} == first
    assert len(provider.calls()) == calls, "nothing was bought again"
    assert len(conversations(answering, folder)) == 4


def test_an_item_that_was_edited_is_a_new_one_and_the_old_answer_is_put_aside(outlive: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "prompts.jsonl", {"a": "[[say One.]]", "b": "[[say Two.]]"})
    folder = tmp_path / "prompts.jsonl.batch"
    assert outlive("batch", "run", str(file), "--model", MODEL).returncode == 0
    write(file, {"b": "[[say Two and a half.]]", "a": "[[say One.]]"})
    assert outlive("batch", "run", str(file)).returncode == 0
    assert {line["item"]: line["answer"] for line in lines(folder / "results.jsonl")} == {
        "a": "One.",
        "b": "Two and a half.",
    }
    assert [line["answer"] for line in lines(folder / "superseded.jsonl")] == ["Two."]


def test_what_cannot_be_run_is_said_before_anything_is_made(outlive: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "prompts.jsonl", {"a": "[[say One.]]"})
    folder = tmp_path / "prompts.jsonl.batch"
    for arguments, code, said in (
        (("run", str(tmp_path / "none.txt")), 2, "cannot be read"),
        (("run", str(file), "--every", "soon"), 2, "--every"),
        (("run", str(file), "--agent", "nobody"), 3, "no agent"),
        (("run", str(file), "--column", "question"), 2, "no text under 'question'"),
        (("retry", str(folder)), 3, "no batch"),
        (("status", str(folder)), 3, "no batch"),
    ):
        result = outlive("batch", *arguments)
        assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert not folder.exists()
    assert outlive("batch", "run", str(file), "--model", MODEL).returncode == 0
    other = outlive("batch", "run", str(file), "--model", "demo:")
    assert (other.returncode, "was begun with the model" in other.stderr) == (2, True)


def test_an_item_that_the_server_refuses_fails_alone(outlive: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "a", "prompt": "Hi", "agent": "nobody"}\n{"id": "b", "prompt": "[[say Yes.]]"}\n')
    assert outlive("batch", "run", str(file), "--model", MODEL).returncode == 1
    [failure] = lines(tmp_path / "prompts.jsonl.batch" / "failures.jsonl")
    assert (failure["item"], failure["outcome"], "no agent 'nobody'" in failure["reason"]) == ("a", "refused", True)
    assert [line["item"] for line in lines(tmp_path / "prompts.jsonl.batch" / "results.jsonl")] == ["b"]


def test_a_stack_that_stays_away_ends_the_command_which_can_be_run_again(
    outlive: Run, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "prompts.jsonl", {"a": "[[say One.]]"})
    assert outlive("batch", "run", str(file), "--model", MODEL).returncode == 0
    write(file, {"a": "[[say One.]]", "b": "[[say Two.]]"})
    with monkeypatch.context() as away:
        away.setenv("OUTLIVE_URL", f"http://127.0.0.1:{free_port}")
        left = outlive("batch", "run", str(file), "--patience", "0")
    assert (left.returncode, left.stdout) == (5, "")
    assert "The same command again goes on where this was." in left.stderr
    assert "Nobody answers" in left.stderr
    assert outlive("batch", "run", str(file)).returncode == 0


def test_what_waits_for_the_time_holds_up_nobody_and_is_waited_for_at_the_end(outlive: Run, tmp_path: Path) -> None:
    slow = '[[tool wait {"seconds": 12}]] [[say Late.]]'
    file = write(tmp_path / "prompts.jsonl", {"slow": slow, "quick": "[[say Soon.]]"})
    assert outlive("batch", "run", str(file), "--model", MODEL, "--parallel", "1").returncode == 0
    results = lines(tmp_path / "prompts.jsonl.batch" / "results.jsonl")
    assert {line["item"]: line["answer"] for line in results} == {"slow": "Late.", "quick": "Soon."}
    assert lines(tmp_path / "prompts.jsonl.batch" / "waiting.jsonl") == []


# ── what waits for a person ──


def test_what_waits_for_a_person_is_set_aside_and_collected_once_it_went_on(
    running: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody answers on this stack: the test itself writes what a worker would."""
    monkeypatch.setenv("OUTLIVE_HOME", str(running.path))
    outlive = _caller(capsys)
    file = write(tmp_path / "prompts.jsonl", {"a": "May you?", "b": "And you?"})
    folder = tmp_path / "prompts.jsonl.batch"

    async def write_turn(conversation: str, turn: str, decided: bool) -> None:
        async with open_turn(running.path, conversation, turn) as writing:
            await writing.begin()
            asked = ApprovalRequested(approval=APPROVAL, question="May I?", expires_at="2100-01-01T00:00:00.000000Z")
            await writing.append("asked", asked)
            if decided:
                await writing.append("decided", ApprovalDecided(approval=APPROVAL, decision="approve"))
                await writing.answer(1, pieces=("Yes.",))
                await writing.finish()

    async def run_beside() -> Here:
        found: list[Here] = []
        async with anyio.create_task_group() as group:

            async def go() -> None:
                found.append(
                    await anyio.to_thread.run_sync(lambda: outlive("batch", "run", str(file), "--parallel", "1"))
                )

            group.start_soon(go)
            # One at a time, so the second is only asked for when the first was set aside.
            for n in (1, 2):
                await eventually(lambda n=n: len(_open(running, folder)) >= n, 60.0)  # type: ignore[misc]
                newest = _open(running, folder)[0]
                await write_turn(newest["id"], newest["turn"], False)
        return found[0]

    result = anyio.run(run_beside)
    assert result.returncode == 1
    assert "2 items: 0 done, 2 waiting for somebody" in result.stdout
    assert "May I?" in result.stdout
    for each in lines(folder / "waiting.jsonl"):
        anyio.run(write_turn, each["conversation"], each["turn"], True)
    assert outlive("batch", "run", str(file)).returncode == 0
    assert [line["answer"] for line in lines(folder / "results.jsonl")] == ["1: Yes.", "1: Yes."]
    assert lines(folder / "waiting.jsonl") == []
    assert len(conversations(running, folder)) == 2


def _open(home: Home, folder: Path) -> list[dict[str, Any]]:
    """Conversations of the batch with a message, newest first."""
    if not (folder / "batch.json").exists():
        return []
    return [each for each in conversations(home, folder) if each["turn"] is not None]
