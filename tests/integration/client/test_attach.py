"""Attachments on real sockets: through cut connections, killed and moved servers each byte once, typed at most once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from eventually import eventually
from integration.client.terminal_peer import TERMINAL, TOKEN, TerminalPeer, open_terminal_peer
from outlive.base import (
    DeniedError,
    ExhaustedError,
    NotFoundError,
    OutliveError,
    UnauthenticatedError,
    UnavailableError,
)
from outlive.client import AsyncClient, Attachment, Client, TerminalExit, TerminalOutput, TerminalStatus
from outlive.client.attaching import UNSENT_LIMIT

pytestmark = pytest.mark.anyio


@pytest.fixture
async def peer(anyio_backend: str) -> AsyncIterator[TerminalPeer]:
    async with open_terminal_peer() as peer:
        yield peer


class Reader:
    """Reads an attachment in the background, as somebody who looks on does."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.output = b""
        self.screens: list[bytes] = []
        self.words: list[dict[str, object]] = []
        self.end: TerminalExit | None = None
        self.error: OutliveError | None = None

    async def run(self) -> None:
        try:
            async for frame in self.attachment:
                match frame:
                    case TerminalOutput(_, data, is_screen=True):
                        self.screens.append(data)
                    case TerminalOutput(_, data):
                        self.output += data
                    case TerminalStatus(words):
                        self.words.append(dict(words))
                    case TerminalExit():
                        self.end = frame
        except OutliveError as error:
            self.error = error


@asynccontextmanager
async def _reading(api: AsyncClient, **given: object) -> AsyncIterator[Reader]:
    async with api.terminals.attach(TERMINAL, **given) as attachment, anyio.create_task_group() as group:  # type: ignore[arg-type]
        reader = Reader(attachment)
        group.start_soon(reader.run)
        yield reader
        group.cancel_scope.cancel()


async def test_a_cut_connection_loses_no_byte_and_repeats_none(peer: TerminalPeer) -> None:
    peer.early = 3
    lost: list[str] = []
    async with (
        AsyncClient(peer.url, TOKEN) as client,
        _reading(client, offset=0, on_lost=lambda error, _: lost.append(error.code)) as reader,
    ):
        written = b""
        for number in range(5):
            written += b"%d" % number * 5000
            peer.print(b"%d" % number * 5000)
            await eventually(lambda: len(reader.output) > 0, within_s=30)
            peer.cut()
            await peer.attached(number + 2)
        peer.end(3)
        await eventually(lambda: reader.end is not None, within_s=30)
    assert reader.output == written
    assert reader.end == TerminalExit(3)
    assert set(lost) == {"api.cut_off"}
    assert len(lost) == 5
    assert [asked.get("again") for asked in peer.asked] == [None, *["true"] * 5], "only who comes back says so"


async def test_a_server_that_was_killed_and_moved_to_another_port_is_found(
    peer: TerminalPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_endpoint() -> None:
        (tmp_path / "endpoint.json").write_text(json.dumps({"url": peer.url, "token": TOKEN}))

    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path))
    monkeypatch.delenv("OUTLIVE_URL", raising=False)
    monkeypatch.delenv("OUTLIVE_TOKEN", raising=False)
    write_endpoint()
    async with AsyncClient() as client, _reading(client, offset=0, mode="type") as reader:
        await peer.attached()
        await reader.attachment.send(b"before ")
        peer.print(b"one ")
        await eventually(lambda: (reader.output, peer.typed) == (b"one ", b"before "), within_s=30)
        old = peer.port
        await peer.stop()
        await eventually(lambda: not reader.attachment.is_connected, within_s=30)
        await reader.attachment.send(b"meanwhile ")
        peer.print(b"two ")
        await peer.start()
        assert peer.port != old
        write_endpoint()
        await eventually(lambda: reader.output == b"one two ", within_s=30)
        await reader.attachment.send(b"after")
        await eventually(lambda: peer.typed == b"before meanwhile after", within_s=30)
    assert peer.asked[-1] == {"mode": "type", "from": "4", "again": "true"}


@pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 1013])
async def test_a_server_that_says_goodbye_is_come_back_to(peer: TerminalPeer, code: int) -> None:
    async with AsyncClient(peer.url, TOKEN) as client, _reading(client, offset=0) as reader:
        peer.print(b"a")
        await eventually(lambda: reader.output == b"a", within_s=30)
        await peer.close_all(code)
        await peer.attached(2)
        peer.print(b"b")
        await eventually(lambda: reader.output == b"ab", within_s=30)


async def test_without_an_offset_the_screen_comes_first_and_once(peer: TerminalPeer) -> None:
    peer.output = b"old"
    async with AsyncClient(peer.url, TOKEN) as client, _reading(client) as reader:
        await eventually(lambda: reader.attachment.offset == 3, within_s=30)
        peer.cut()
        await peer.attached(2)
        peer.print(b"new")
        await eventually(lambda: reader.output == b"new", within_s=30)
    assert reader.screens == [b"<screen>"]
    assert peer.asked == [{"mode": "observe"}, {"mode": "observe", "from": "3", "again": "true"}]


async def test_a_screen_can_be_asked_for_again_at_any_time(peer: TerminalPeer) -> None:
    lost: list[OutliveError] = []
    async with (
        AsyncClient(peer.url, TOKEN) as client,
        _reading(client, offset=0, on_lost=lambda error, _: lost.append(error)) as reader,
    ):
        await peer.attached()
        for _ in range(3):
            peer.print(b"x" * 1000)
            await reader.attachment.redraw()
        await eventually(lambda: bool(reader.screens) and reader.attachment.offset == 3000, within_s=30)
        peer.print(b"live")
        await eventually(lambda: reader.output.endswith(b"live"), within_s=30)
    assert lost == [], "this was wanted"
    assert reader.error is None


async def test_what_was_handed_over_is_never_typed_twice(peer: TerminalPeer) -> None:
    async with AsyncClient(peer.url, TOKEN) as client, _reading(client, offset=0, mode="type") as reader:
        await peer.attached()
        for number in range(40):
            await reader.attachment.send(b"<%d>" % number)
            if number % 10 == 5:
                peer.cut()
        await reader.attachment.send(b"<end>")
        await eventually(lambda: peer.typed.endswith(b"<end>"), within_s=30)
    seen = [int(part) for part in peer.typed.replace(b">", b"").split(b"<")[1:-1]]
    assert seen == sorted(set(seen)), "in order and at most once"


async def test_what_is_typed_while_the_server_is_away_is_kept_within_bounds(peer: TerminalPeer) -> None:
    async with AsyncClient(peer.url, TOKEN) as client, _reading(client, offset=0, mode="type") as reader:
        await peer.attached()
        port = peer.port
        await peer.stop()
        await eventually(lambda: not reader.attachment.is_connected, within_s=30)
        await reader.attachment.send(b"x" * UNSENT_LIMIT)
        with pytest.raises(ExhaustedError) as refused:
            await reader.attachment.send(b"y")
        assert refused.value.code == "terminal.unsent"
        for size in ((90, 20), (100, 30)):
            await reader.attachment.resize(*size)
        await peer.start(port)
        await eventually(lambda: peer.typed == b"x" * UNSENT_LIMIT, within_s=30)
        await reader.attachment.end_input()
        await eventually(lambda: peer.ended_input == 1, within_s=30)
    assert peer.sizes == [{"Width": 100, "Height": 30}]


async def test_a_refusal_that_does_not_heal_is_raised(peer: TerminalPeer) -> None:
    async with AsyncClient(peer.url, "wrong") as client:
        with pytest.raises(UnauthenticatedError):
            await client.terminals.attach(TERMINAL).next_frame()
    async with AsyncClient(peer.url, TOKEN) as client:
        peer.refusal = (403, {"kind": "denied", "code": "terminal.denied", "detail": "You may only look."})
        with pytest.raises(DeniedError) as denied:
            await client.terminals.attach(TERMINAL, mode="type").next_frame()
        assert denied.value.code == "terminal.denied"
        with pytest.raises(NotFoundError):
            client.terminals.attach("nonsense")


async def test_a_refusal_that_heals_is_waited_out(peer: TerminalPeer) -> None:
    peer.refusal = (503, {"kind": "unavailable", "code": "machine.node_away", "detail": "Later."})
    lost: list[str] = []

    def heal(error: OutliveError, _: float) -> None:
        lost.append(error.code)
        peer.refusal = None

    async with AsyncClient(peer.url, TOKEN) as client, _reading(client, offset=0, on_lost=heal) as reader:
        peer.print(b"hello")
        await eventually(lambda: reader.output == b"hello", within_s=30)
    assert lost == ["machine.node_away"]


async def test_whoever_does_not_want_to_wait_for_ever_is_told(free_port: int) -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port}", TOKEN) as client:
        with pytest.raises(UnavailableError) as away:
            await client.terminals.attach(TERMINAL, give_up_after_s=0.5).next_frame()
    assert away.value.code == "api.unreachable"


async def test_what_is_said_is_passed_on_and_remembered(peer: TerminalPeer) -> None:
    peer.lease = {"operator": "prin_1", "name": "ana"}
    async with AsyncClient(peer.url, TOKEN) as client, _reading(client, offset=0, client="a test") as reader:
        await eventually(lambda: reader.attachment.lease == peer.lease, within_s=30)
        await peer.say(lease=None)
        await eventually(lambda: reader.attachment.lease is None, within_s=30)
        await peer.say(refused={"lease": None})
        await eventually(lambda: {"refused": {"lease": None}} in reader.words, within_s=30)
    assert peer.clients == ["a test"]


async def test_the_same_without_async(peer: TerminalPeer) -> None:
    peer.output = b"hello"

    def use() -> tuple[bytes, TerminalExit | None]:
        seen, end = b"", None
        with Client(peer.url, TOKEN) as client, client.terminals.attach(TERMINAL, mode="type", offset=0) as attachment:
            for frame in attachment:
                if isinstance(frame, TerminalStatus) and frame.is_attached:
                    attachment.send(b"typed")
                elif isinstance(frame, TerminalOutput):
                    seen += frame.data
                elif isinstance(frame, TerminalExit):
                    end = frame
        return seen, end

    async with anyio.create_task_group() as group:

        async def end_it() -> None:
            await eventually(lambda: peer.typed == b"typed", within_s=30)
            peer.end(0)

        group.start_soon(end_it)
        assert await anyio.to_thread.run_sync(use) == (b"hello", TerminalExit(0))
