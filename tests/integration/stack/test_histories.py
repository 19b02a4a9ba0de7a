"""`outlive histories export`: what Temporal remembers of turns, as files that can be replayed."""

import json
from pathlib import Path

import pytest

from eventually import eventually_sync
from integration.stack.homes import Home
from outlive.testing.pretend_provider import provider_process
from replay.test_replay import replay

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SECRET = "the quick brown secret"


async def test_turns_are_exported_as_histories_that_can_be_replayed_and_hold_nothing_that_was_said(
    tmp_path: Path,
) -> None:
    with provider_process() as provider:
        home = Home(tmp_path / "home", **provider.environment())
        try:
            home.up()
            conversation = home.create("first")
            for n in (1, 2):
                home.post(f"/v1/conversations/{conversation}/messages", {"text": f"[[say {SECRET} {n}]]"})
                eventually_sync(lambda n=n: _turns(home, conversation) == n, 60.0, every_s=0.1)  # type: ignore[misc]
                # A message that comes while a workflow is still ending joins it: the next is sent when it is over.
                items = _export(home, conversation, tmp_path / "out", n)
            nobody = home.run("histories", "export", "conv_" + "0" * 32, "--out", str(tmp_path))
        finally:
            home.stop()
        away = home.run("histories", "export", "--out", str(tmp_path))
    assert {item["conversation"] for item in items} == {conversation}
    for item in items:
        assert await replay(Path(item["path"])) is None
    assert not [text for text in map(_read, items) if SECRET in text]
    assert (nobody.returncode, away.returncode) == (3, 5), (nobody, away)


def _read(item: dict[str, str]) -> str:
    return Path(item["path"]).read_text()


def _turns(home: Home, conversation: str) -> int:
    events = home.get(f"/v1/conversations/{conversation}/events")["items"]
    return sum(event["type"] == "turn.finished" for event in events)


def _export(home: Home, conversation: str, out: Path, count: int) -> list[dict[str, str]]:
    """Once Temporal lists as many runs, and all of them are over: it does so a moment after the log has the end."""
    found: list[dict[str, str]] = []

    def are_there() -> bool:
        exported = home.run("histories", "export", conversation, "--out", str(out), "--json")
        assert exported.returncode in (0, 3), exported.stderr
        found[:] = json.loads(exported.stdout).get("items", [])
        return len(found) == count and all(item["state"] == "completed" for item in found)

    try:
        eventually_sync(are_there, 60.0, every_s=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}; the last export: {found}") from None
    return found
