"""Two people and an agent at one terminal of a real machine, while its API and its node are killed and it sleeps."""

import contextlib
import json
import time
from itertools import groupby
from operator import itemgetter
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from eventually import eventually_sync
from integration.stack.homes import Home

WITHIN_S = 60.0


@pytest.fixture
def home(home: Home) -> Home:
    home.environment["OUTLIVE_MACHINES__ENABLED"] = "on"
    return home


class Seat:
    """Somebody at a terminal. Comes back by its offset whenever it is cut off; counts every byte."""

    def __init__(self, home: Home, terminal: str, token: str, mode: str) -> None:
        self._home = home
        self._terminal = terminal
        self._token = token
        self._mode = mode
        self._connection: ClientConnection | None = None
        self._open = contextlib.ExitStack()
        self.seen = bytearray()
        self.offset = 0
        self.statuses: list[dict[str, Any]] = []

    def _connected(self) -> ClientConnection:
        deadline = time.monotonic() + WITHIN_S
        while self._connection is None:
            assert time.monotonic() < deadline
            url = self._home.endpoint["url"].replace("http", "ws", 1)
            # Refused, or answered with a problem, while the stack is being restarted.
            with contextlib.suppress(OSError, InvalidHandshake, ConnectionClosed, TimeoutError):
                connecting = connect(
                    f"{url}/v1/terminals/{self._terminal}/attach?mode={self._mode}&from={self.offset}",
                    additional_headers={"Authorization": f"Bearer {self._token}"},
                    compression=None,
                    proxy=None,
                )
                self._connection = self._open.enter_context(connecting)
        return self._connection

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + WITHIN_S
        while text not in self.seen:
            assert time.monotonic() < deadline, bytes(self.seen[-2000:])
            try:
                self._take(self._connected().recv(timeout=1))
            except TimeoutError:
                pass
            except ConnectionClosed:
                self.leave()

    def _take(self, message: str | bytes) -> None:
        assert isinstance(message, bytes)
        if message[0] == 1:
            self.seen += message[1:]
            self.offset += len(message) - 1
        elif message[0] == 5:
            words = json.loads(message[1:])
            self.statuses.append(words)
            assert "gap" not in words
            assert words.get("offset", self.offset) == self.offset

    def type(self, text: bytes) -> None:
        self._connected().send(b"\x00" + text)

    def leave(self) -> None:
        self._connection = None
        self._open.close()


def _act(home: Home, terminal: str, verb: str, token: str, **body: object) -> httpx.Response:
    url = f"{home.endpoint['url']}/v1/terminals/{terminal}/{verb}"
    headers = {"authorization": f"Bearer {token}"}
    return httpx.post(url, json=body, headers=headers, timeout=WITHIN_S, trust_env=False)


def _do(home: Home, terminal: str, verb: str, token: str, **body: object) -> None:
    """As soon as somebody is there to do it. Only for what may be asked for twice."""

    def is_done() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return _act(home, terminal, verb, token, **body).is_success
        return False

    eventually_sync(is_done, WITHIN_S, every_s=0.2)


@pytest.mark.timeout(300)
def test_two_people_and_an_agent_see_the_same_bytes_whatever_is_killed(home: Home) -> None:
    home.up()
    machine = home.post("/v1/machines", {"environment": "host"})["id"]
    terminal = home.post(f"/v1/machines/{machine}/terminals", {"command": "stty -echo; echo ready; exec cat"})["id"]
    tokens = {
        name: home.post("/v1/principals", {"name": name, "kind": kind})["token"]
        for name, kind in (("ann", "person"), ("bob", "person"), ("bot", "agent"))
    }
    seats = {
        "ann": Seat(home, terminal, tokens["ann"], "type"),
        "bob": Seat(home, terminal, tokens["bob"], "observe"),
        "bot": Seat(home, terminal, tokens["bot"], "type"),
    }
    try:

        def all_see(text: bytes) -> None:
            for seat in seats.values():
                seat.until(text)

        seats["bot"].until(b"ready\r\n")
        all_see(b"ready\r\n")
        seats["bot"].type(b"one, by the bot\n")
        all_see(b"one, by the bot\r\n")
        home.kill(home.api_pid())
        _do(home, terminal, "take", tokens["ann"])
        assert _act(home, terminal, "input", tokens["bot"], data="not by the bot\n").status_code == 409
        assert _act(home, terminal, "input", tokens["ann"], data="two, by ann\n").status_code == 200
        all_see(b"two, by ann\r\n")
        home.kill(home.pid_of("node"))
        seats["ann"].type(b"three, by ann\n")
        all_see(b"three, by ann\r\n")
        home.post(f"/v1/machines/{machine}/hibernate")
        _do(home, terminal, "yield", tokens["ann"])  # wakes it
        assert _act(home, terminal, "input", tokens["bot"], data="four, by the bot\n").status_code == 200
        all_see(b"four, by the bot\r\n")
    finally:
        for seat in seats.values():
            seat.leave()
    expected = b"ready\r\none, by the bot\r\ntwo, by ann\r\nthree, by ann\r\nfour, by the bot\r\n"
    assert {name: bytes(seat.seen) for name, seat in seats.items()} == dict.fromkeys(seats, expected)
    account = home.get(f"/v1/terminals/{terminal}/account")
    # What one operator types within two seconds is told as one text.
    typed = [(name, "".join(each["text"] for each in of)) for name, of in groupby(account["typed"], itemgetter("name"))]
    assert typed == [
        ("bot", "one, by the bot\n"),
        ("ann", "two, by ann\nthree, by ann\n"),
        ("bot", "four, by the bot\n"),
    ]
    assert account["missing"] == []
