"""`outlive attach` from a pipe, against a server that comes late, or not at all: nothing that came in is dropped."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from eventually import eventually
from integration.client.terminal_peer import TERMINAL, TOKEN, TerminalPeer, open_terminal_peer
from outlive.base import OutliveError
from outlive.cli import attach_pipe
from outlive.cli.attach_pipe import Passing
from outlive.cli.local_terminal import LocalTerminal
from outlive.cli.output import first_error
from outlive.client import AsyncClient
from outlive.client.attaching import UNSENT_LIMIT, OnLost

pytestmark = pytest.mark.anyio

AWAY = (503, {"kind": "unavailable", "code": "machine.node_away", "detail": "Later."})


@pytest.fixture
async def peer(anyio_backend: str) -> AsyncIterator[TerminalPeer]:
    async with open_terminal_peer() as peer:
        yield peer


@contextmanager
def _pipe(given: bytes, out: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTerminal]:
    """Standard input is a pipe out of which these come, and ends."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as end:
            end.write(given)

    with os.fdopen(reading, "rb") as stdin, out.open("w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        writer = Thread(target=write)
        writer.start()
        try:
            yield LocalTerminal()
        finally:
            stdin.close()
            writer.join()


async def _pass(peer: TerminalPeer, local: LocalTerminal, on_lost: OnLost) -> None:
    """And leave at the first moment that can be called silent."""
    async with AsyncClient(peer.url, TOKEN) as client:
        attachment = client.terminals.attach(TERMINAL, mode="type", offset=0, on_lost=on_lost)
        assert await Passing(local, attachment, types=True, as_json=False, linger_s=0.0).run() is None


@pytest.mark.parametrize("lines", [1, UNSENT_LIMIT // 4])
async def test_what_came_in_while_the_server_was_away_is_typed_however_short_the_linger(
    peer: TerminalPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    given = b"0123456789abcde\n" * lines
    peer.refusal = AWAY
    lost: list[str] = []

    def heal(error: OutliveError, _: float) -> None:
        lost.append(error.code)
        peer.refusal = None

    with _pipe(given, tmp_path / "out", monkeypatch) as local:
        await _pass(peer, local, heal)
    await eventually(lambda: len(peer.typed) >= len(given), within_s=30)
    assert peer.typed == given
    assert lost == ["machine.node_away"]


async def test_what_came_in_and_could_not_be_typed_is_an_error(
    peer: TerminalPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.refusal = AWAY
    monkeypatch.setattr(attach_pipe, "AWAY_S", 0.5)
    with (
        _pipe(b"hello\n", tmp_path / "out", monkeypatch) as local,
        pytest.raises(BaseExceptionGroup) as failed,
    ):
        await _pass(peer, local, lambda *_: None)
    error = first_error(failed.value)
    assert error is not None
    assert (error.kind, error.code) == ("unavailable", "terminal.not_typed")
    assert peer.typed == b""
