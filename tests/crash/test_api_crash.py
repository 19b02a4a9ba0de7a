"""The API killed at any armed point while it serves a POST: asked again with the same key, it was done once."""

import http.client
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from eventually import eventually_sync
from integration.stack.homes import Home
from outlive.base import CrashPoint, new_operation_id
from outlive.wiring.build import open_conversations
from outlive.wiring.settings import read_settings

pytestmark = pytest.mark.timeout(120)

BIG = "more than fits a row " * 5_000

SEND_POINTS = [
    CrashPoint.API_AFTER_CLAIM,
    CrashPoint.API_BEFORE_RECORD,
    CrashPoint.API_BEFORE_ANSWER,
    CrashPoint.BLOB_BEFORE_PUT,
    CrashPoint.BLOB_AFTER_PUT,
    CrashPoint.LOG_BEFORE_COMMIT,
    CrashPoint.LOG_AFTER_COMMIT,
    CrashPoint.FEED_BEFORE_PUBLISH,
    CrashPoint.FEED_AFTER_PUBLISH,
]
MAKE_POINTS = [
    CrashPoint.API_AFTER_CLAIM,
    CrashPoint.LOG_BEFORE_COMMIT,
    CrashPoint.LOG_AFTER_COMMIT,
    CrashPoint.FEED_BEFORE_PUBLISH,
    CrashPoint.API_BEFORE_RECORD,
    CrashPoint.API_BEFORE_ANSWER,
]


@contextmanager
def api(home: Home, crash_at: str = "") -> Iterator["Api"]:
    with home.start("api", "--port", "0", OUTLIVE_CRASH_AT=crash_at) as process:
        served = Api(home, process.poll)
        eventually_sync(served.is_ready, within_s=20)
        yield served
        process.terminate()
        process.wait(15)


class Api:
    """One life of the API process, without a supervisor that would start it again."""

    def __init__(self, home: Home, poll: Callable[[], int | None]) -> None:
        self._home = home
        self.poll = poll

    def is_ready(self) -> bool:
        assert self.poll() is None, "the API ended instead of getting ready"
        try:
            self.get("/v1/conversations")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return True

    def get(self, path: str) -> Any:
        return self._home.call("GET", path)

    def post(self, path: str, body: object, key: str) -> tuple[int, Any]:
        endpoint = self._home.endpoint
        connection = http.client.HTTPConnection(endpoint["url"].removeprefix("http://"), timeout=10)
        headers = {"Authorization": f"Bearer {endpoint['token']}", "Idempotency-Key": key}
        connection.request("POST", path, json.dumps(body), headers | {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def post_until_done(self, path: str, body: object, key: str) -> Any:
        """As a client does: while the first try is said to be under way, ask again."""
        answers: list[Any] = []

        def is_done() -> bool:
            status, answer = self.post(path, body, key)
            assert status in (201, 202) or answer["code"] == "idempotency.in_flight", answer
            answers.append(answer)
            return status != 409

        eventually_sync(is_done, within_s=20)
        return answers[-1]


def make_conversation(home: Home) -> str:
    async def make() -> str:
        async with open_conversations(read_settings({"home": str(home.path)})) as conversations:
            return (await conversations.create(new_operation_id(), actor="prin_test", title="first")).id

    return anyio.run(make)


def die_at(home: Home, point: CrashPoint, path: str, body: object) -> None:
    """An API that dies at `point` while it serves this POST; the key is the name of the point."""
    with api(home, point) as dying:
        with pytest.raises((OSError, http.client.HTTPException)):
            dying.post(path, body, point)
        eventually_sync(lambda: dying.poll() is not None)
        assert dying.poll() == -signal.SIGKILL, "the point was reached and armed"


def test_a_message_cut_off_by_a_dying_api_is_recorded_once(tmp_path: Path) -> None:
    home = Home(tmp_path, OUTLIVE_LOOP__ENABLED="false")
    conversation = make_conversation(home)
    path = f"/v1/conversations/{conversation}/messages"
    for point in SEND_POINTS:
        die_at(home, point, path, {"text": BIG + point})
    with api(home) as served:
        answers = {point: served.post_until_done(path, {"text": BIG + point}, point) for point in SEND_POINTS}
        assert answers == {point: served.post_until_done(path, {"text": BIG + point}, point) for point in SEND_POINTS}
        log = served.get(f"/v1/conversations/{conversation}/events")["items"]
    assert [event["seq"] for event in log] == list(range(1, len(SEND_POINTS) + 2))
    recorded = {event["data"]["text"].removeprefix(BIG): event for event in log[1:]}
    assert {point: answers[point]["seq"] for point in SEND_POINTS} == {
        point: recorded[point]["seq"] for point in SEND_POINTS
    }
    assert all(answers[point]["message_id"] == recorded[point]["data"]["message"] for point in SEND_POINTS)


@pytest.mark.parametrize("operation", ["create", "fork"])
def test_a_conversation_cut_off_by_a_dying_api_is_made_once(tmp_path: Path, operation: str) -> None:
    home = Home(tmp_path, OUTLIVE_LOOP__ENABLED="false")
    first = make_conversation(home)
    path = "/v1/conversations" if operation == "create" else f"/v1/conversations/{first}/fork"
    body: dict[str, Any] = {"title": "only one"} if operation == "create" else {"at": 1}
    for point in MAKE_POINTS:
        die_at(home, point, path, body)
    with api(home) as served:
        made = {served.post_until_done(path, body, point)["id"] for point in MAKE_POINTS}
        assert made == {served.post_until_done(path, body, point)["id"] for point in MAKE_POINTS}
        found = {each["id"] for each in served.get("/v1/conversations")["items"]}
    assert len(made) == len(MAKE_POINTS)
    assert found == made | {first}


def test_what_nobody_was_told_of_is_shown_to_those_who_come(tmp_path: Path) -> None:
    """Killed between the log and the feed, and never asked again."""
    home = Home(tmp_path, OUTLIVE_LOOP__ENABLED="false")
    conversation = make_conversation(home)
    die_at(home, CrashPoint.FEED_BEFORE_PUBLISH, f"/v1/conversations/{conversation}/messages", {"text": "kept"})
    with api(home) as served:
        log = served.get(f"/v1/conversations/{conversation}/events")["items"]
    assert [event["data"].get("text") for event in log] == [None, "kept"]
