"""Turns in a running stack, with its processes killed: they end as if nothing had been."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home, stand_still
from outlive import Client
from outlive.testing.pretend_provider import ProviderProcess, provider_process

WITHIN_S = 60.0
LONG = " ".join(f"word{n}" for n in range(60))
SLOW = f"[[pace 0.1]] [[say {LONG}]]"  # whoever comes in its middle has seconds for it
ENDLESS = "[[pace 0.1]] [[big 3000]]"


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderProcess]:
    with provider_process() as provider:
        yield provider


@pytest.fixture(scope="module")
def talking(provider: ProviderProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """One stack with machines for all tests of this file: starting it takes longer than what they do."""
    home = Home(tmp_path_factory.mktemp("talking") / "home", OUTLIVE_MACHINES__ENABLED="on", **provider.environment())
    try:
        home.up()
        yield home
    finally:
        home.stop()
        home.end_sandboxes()


def _events(home: Home, conversation: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = home.get(f"/v1/conversations/{conversation}/events?limit=1000")["items"]
    return items


def _send(home: Home, conversation: str, text: str) -> str:
    return str(home.post(f"/v1/conversations/{conversation}/messages", {"text": text})["turn_id"])


def _ended(home: Home, conversation: str, turn: str) -> list[dict[str, Any]]:
    def is_over() -> bool:
        try:
            return any(each["type"] == "turn.finished" and each["turn"] == turn for each in _events(home, conversation))
        except (OSError, urllib.error.URLError):
            return False

    try:
        eventually_sync(is_over, WITHIN_S, every_s=0.05)
    except AssertionError as error:
        error.add_note(json.dumps(_events(home, conversation), indent=1)[-4000:])
        raise
    return _events(home, conversation)


def _of(events: list[dict[str, Any]], type: str) -> list[dict[str, Any]]:
    return [each["data"] for each in events if each["type"] == type]


def _is_streaming(provider: ProviderProcess) -> bool:
    calls = provider.calls()
    return bool(calls) and calls[-1].outcome == "under_way" and calls[-1].pieces > 1


class _Follower:
    """Follows a conversation in a thread, from its beginning to the end of its turn."""

    def __init__(self, home: Home, conversation: str) -> None:
        self.frames: list[dict[str, Any]] = []
        endpoint = home.endpoint
        self._request = urllib.request.Request(
            f"{endpoint['url']}/v1/conversations/{conversation}/stream",
            headers={"Authorization": f"Bearer {endpoint['token']}"},
        )
        self._thread = threading.Thread(target=self._read)

    @contextmanager
    def following(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        with urllib.request.urlopen(self._request, timeout=WITHIN_S) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    self.frames.append(json.loads(line[6:]))
                    if self.frames[-1]["type"] == "turn.finished":
                        return


def test_a_worker_killed_in_mid_stream_is_followed_by_another_attempt_and_followers_are_rewound(
    talking: Home, provider: ProviderProcess
) -> None:
    conversation = talking.create("killed")
    follower = _Follower(talking, conversation)
    with follower.following():
        turn = _send(talking, conversation, SLOW)
        eventually_sync(lambda: _is_streaming(provider), WITHIN_S)
        assert talking.get(f"/v1/conversations/{conversation}")["state"] == "running"
        talking.kill(talking.pid_of("worker"))
        events = _ended(talking, conversation, turn)
    assert [each["attempt"] for each in events if each["type"] == "step.started"] == [1, 2]
    [recovered] = _of(events, "turn.recovered")
    assert (recovered["what"], recovered["attempt"]) == ("step_retried", 2)
    [answer] = _of(events, "model.responded")
    assert answer["text"].endswith(LONG)
    seen = [each["type"] for each in follower.frames]
    assert seen.count("step.rewound") == 1
    rewound = seen.index("step.rewound")
    text = "".join(each["data"]["text"] for each in follower.frames[rewound:] if each["type"] == "model.delta")
    assert answer["text"].startswith(text)
    [step] = {each["step"] for each in events if each["type"] == "model.responded"}
    assert [call.outcome for call in provider.calls() if call.step == step].count("answered") == 1


def test_an_interrupt_over_http_ends_the_turn_and_there_is_nothing_left_to_interrupt(
    talking: Home, provider: ProviderProcess
) -> None:
    conversation = talking.create("stopped")
    turn = _send(talking, conversation, ENDLESS)
    eventually_sync(lambda: _is_streaming(provider), WITHIN_S)
    shown = talking.post(f"/v1/conversations/{conversation}/interrupt", {"reason": "enough"})
    assert shown["state"] == "idle"
    assert _of(_ended(talking, conversation, turn), "turn.finished") == [{"outcome": "interrupted", "reason": "enough"}]
    with pytest.raises(urllib.error.HTTPError) as refused:
        talking.post(f"/v1/conversations/{conversation}/interrupt")
    assert refused.value.code == 409
    _send(talking, conversation, ENDLESS)
    eventually_sync(lambda: _is_streaming(provider), WITHIN_S)
    talking.call("DELETE", f"/v1/conversations/{conversation}?interrupt=true")
    assert _of(_events(talking, conversation), "turn.finished")[-1]["outcome"] == "interrupted"


def test_commands_run_in_the_conversations_machine_and_an_interrupt_ends_one(
    talking: Home, provider: ProviderProcess
) -> None:
    conversation = talking.create("working")
    script = (
        '[[tool write_file {"path": "a.txt", "content": "hello"}]] [[tool shell {"command": "cat a.txt"}]] [[quote 5]]'
    )
    events = _ended(talking, conversation, _send(talking, conversation, script))
    assert [each["outcome"] for each in _of(events, "tool.finished")] == ["finished", "finished"]
    assert _of(events, "model.responded")[-1]["text"] == "hello"
    assert len(_of(events, "machine.attached")) == 1

    turn = _send(talking, conversation, '[[tool shell {"command": "echo begun; sleep 600"}]] [[say Never said.]]')
    eventually_sync(lambda: _of(_events(talking, conversation), "tool.requested")[-1]["name"] == "shell", WITHIN_S)
    machine = _of(events, "machine.attached")[0]["machine"]
    running = {"command": "pgrep -x sleep | wc -l"}
    eventually_sync(
        lambda: talking.post(f"/v1/machines/{machine}/exec", running)["stdout"].strip() == "1", WITHIN_S, every_s=0.1
    )
    began = time.monotonic()
    talking.post(f"/v1/conversations/{conversation}/interrupt")
    assert time.monotonic() - began < 14.0  # one or two seconds where nothing else runs
    events = _ended(talking, conversation, turn)
    last = _of(events, "tool.finished")[-1]
    assert last["outcome"] == "failed"
    assert "interrupted" in last["output"]
    assert _of(events, "turn.finished")[-1]["outcome"] == "interrupted"
    assert talking.post(f"/v1/machines/{machine}/exec", running)["stdout"].strip() == "0"


def test_an_agent_works_in_the_machine_that_was_made_for_its_conversation(talking: Home) -> None:
    conversation = talking.create("equipped")
    machine = talking.post("/v1/machines", {"conversation": conversation})["id"]
    talking.post(f"/v1/machines/{machine}/exec", {"command": "echo prepared > a.txt"})
    turn = _send(talking, conversation, '[[tool shell {"command": "cat a.txt"}]] [[quote 20]]')
    events = _ended(talking, conversation, turn)
    assert "prepared" in _of(events, "model.responded")[-1]["text"]
    assert _of(events, "machine.attached") == [{"machine": machine}]


def test_only_the_worker_has_the_keys_of_providers_and_the_api_knows_the_model_all_the_same(talking: Home) -> None:
    seen = {
        child["name"]: {line.partition("=")[0] for line in _environ(child["pid"])}
        for child in talking.record["children"]
    }
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"} <= seen.pop("worker")
    assert set(seen) == {"api", "node", "temporal"}
    for name, variables in seen.items():
        assert not [each for each in variables if each.startswith(("ANTHROPIC", "OPENAI"))], name
        assert "PATH" in variables, name
    assert talking.get("/v1/agents/coder")["model"].startswith("anthropic:")


def _environ(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")


@contextmanager
def _without_temporal(home: Home) -> Iterator[None]:
    """Temporal is dead, and nobody starts it again before the end."""
    supervisor = int(home.record["pid"])
    stand_still(supervisor)
    try:
        home.kill(home.pid_of("temporal"))
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_a_message_is_taken_while_temporal_is_away_and_its_turn_runs_once_it_is_back(talking: Home) -> None:
    conversation = talking.create("away")
    with _without_temporal(talking):
        began = time.monotonic()
        turn = _send(talking, conversation, "[[say Here I am.]]")
        assert time.monotonic() - began < 15.0  # three seconds where nothing else runs
        assert [each["type"] for each in _events(talking, conversation)] == ["conversation.created", "message.sent"]
        assert talking.get(f"/v1/conversations/{conversation}")["state"] == "running"
    events = _ended(talking, conversation, turn)
    assert [each["text"] for each in _of(events, "model.responded")] == ["Here I am."]
    assert _of(events, "turn.finished") == [{"outcome": "done", "reason": None}]
    assert [each["what"] for each in _of(events, "turn.recovered")] == ["restarted"]


def test_the_example_of_the_python_interface_does_what_it_says(talking: Home) -> None:
    command = "git init -q . && echo a > a && git add a && echo b > a; echo changed"
    script = f"[[tool shell {json.dumps({'command': command})}]] [[say Done.]]"
    with Client(talking.endpoint["url"], talking.endpoint["token"]) as client:
        conversation = client.conversations.create(agent="coder")
        types = [event.type for event in conversation.run(script)]
        machine = conversation.machine()
        assert "+b" in machine.exec("git diff").stdout
    assert types[0] == "message.sent"
    assert types[-1] == "turn.finished"
    assert {"model.responded", "machine.attached", "tool.output", "tool.finished"} <= set(types)


def test_a_message_that_comes_while_a_turn_is_being_stopped_is_answered(talking: Home) -> None:
    conversation = talking.create("both")
    stubborn = "bash -c 'trap \"touch /tmp/asked\" INT; echo begun; while :; do sleep 0.1; done'"
    turn = _send(talking, conversation, f"[[tool shell {json.dumps({'command': stubborn})}]] [[say Never said.]]")
    eventually_sync(lambda: bool(_of(_events(talking, conversation), "machine.attached")), WITHIN_S)
    machine = _of(_events(talking, conversation), "machine.attached")[0]["machine"]

    def does(command: str) -> bool:
        return bool(talking.post(f"/v1/machines/{machine}/exec", {"command": command})["exit_code"] == 0)

    eventually_sync(lambda: does("pgrep -x sleep"), WITHIN_S)
    stopping = threading.Thread(target=talking.post, args=(f"/v1/conversations/{conversation}/interrupt",))
    stopping.start()
    try:
        eventually_sync(lambda: does("test -e /tmp/asked"), WITHIN_S)
        _send(talking, conversation, "[[say Then this.]]")  # the command has a second until it is killed
    finally:
        stopping.join(WITHIN_S)
    _ended(talking, conversation, turn)
    eventually_sync(lambda: len(_of(_events(talking, conversation), "turn.finished")) == 2, WITHIN_S)
    events = _events(talking, conversation)
    assert [each["outcome"] for each in _of(events, "turn.finished")] == ["interrupted", "done"]
    assert _of(events, "model.responded")[-1]["text"] == "Then this."
