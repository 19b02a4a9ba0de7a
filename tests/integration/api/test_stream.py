"""The stream over a real socket: catch up, live, resume anywhere, and an end for every reason to end."""

import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest

from eventually import eventually
from integration.api.stack import TOKEN, Api, Shown, follow, open_api, serve
from outlive.base import ConversationId, StepId
from outlive.conversation.events import ModelResponded

pytestmark = pytest.mark.anyio


async def write_story(api: Api) -> ConversationId:
    """A turn with an answer that was tried twice, big and small payloads, all of it sealed."""
    conversation = await api.create(title="story")
    await api.send(conversation, "ask " + "x" * 100_000)
    step = await api.start_step(conversation)
    step.delta("never mind")
    again = await api.start_step(conversation, step._writer.step, attempt=2)
    await again.seal(ModelResponded(text="answer\n\n☃", model="demo:"))
    await api.send(conversation, "thanks")
    return conversation


def durable(frames: list[Shown]) -> list[Shown]:
    return [frame for frame in frames if frame.data["seq"] is not None]


async def test_a_stream_catches_up_and_goes_on_live(api: Api) -> None:
    conversation = await write_story(api)
    events = (await api.http.get(f"/v1/conversations/{conversation}/events")).json()["items"]
    async with follow(api, conversation) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.response.headers["cache-control"] == "no-store"
        assert stream.response.headers["x-accel-buffering"] == "no"
        # One rewind: before the second attempt of the step.
        frames = await stream.take(len(events) + 1)
        assert [frame.data["seq"] for frame in frames] == [1, 2, 3, None, 4, 5, 6]
        assert frames[3].event == "step.rewound"
        assert frames[3].data["data"] == {"step": events[2]["step"], "attempt": 2}
        shown = durable(frames)
        assert [{**frame.data, "position": None} for frame in shown] == [{**each, "position": None} for each in events]
        assert all(frame.event == frame.data["type"] and frame.id == frame.data["position"] for frame in frames)
        sent = await api.send(conversation, "live")
        [live] = await stream.take(1)
        assert (live.data["seq"], live.data["data"]["text"]) == (sent["seq"], "live")


async def test_deltas_come_live_with_their_place_and_resume_in_the_middle(api: Api) -> None:
    conversation = await api.create()
    await api.send(conversation)
    async with follow(api, conversation) as stream:
        await stream.take(2)
        step = await api.start_step(conversation)
        step.delta("Hello, ")
        step.delta("wörld\n")
        step.delta("ls", call="call_1", stream="stdout")
        shown = await stream.take(1)
        text = ""
        while len(text) < len("Hello, wörld\nls"):
            [frame] = await stream.take(1)
            assert frame.data["seq"] is None
            assert frame.data["id"] == f"{step._writer.step}:1:{frame.data['data']['offset']}"
            assert frame.data["data"]["offset"] == len(text)
            text += frame.data["data"]["text"]
            shown.append(frame)
        assert text == "Hello, wörld\nls"
        assert shown[-1].event == "tool.output"
        assert (shown[-1].data["data"]["call"], shown[-1].data["data"]["stream"]) == ("call_1", "stdout")
        assert shown[1].event == "model.delta"
        assert "call" not in shown[1].data["data"]
    # Whoever saw the first delta gets the rest of it, and no more.
    async with follow(api, conversation, last_event_id=shown[1].id) as stream:
        seen = len(shown[1].data["data"]["text"])
        rest = ""
        while len(rest) < len(text) - seen:
            [frame] = await stream.take(1)
            rest += frame.data["data"]["text"]
        assert rest == text[seen:]


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_stream_resumes_at_every_frame_without_loss_or_repetition(api: Api, by: str) -> None:
    conversation = await write_story(api)
    async with follow(api, conversation) as stream:
        whole = await stream.take(7)
    for number, frame in enumerate(whole[:-1]):
        query, headers = ("", {"last_event_id": frame.id}) if by == "header" else (f"?after={frame.id}", {})
        async with follow(api, conversation, query, **headers) as stream:
            assert await stream.take(len(whole) - number - 1) == whole[number + 1 :]


async def test_last_event_id_wins_over_after(api: Api) -> None:
    conversation = await write_story(api)
    async with follow(api, conversation) as stream:
        whole = await stream.take(7)
    async with follow(api, conversation, f"?after={whole[0].id}", last_event_id=whole[4].id) as stream:
        assert await stream.take(2) == whole[5:]


async def test_a_stream_without_deltas_shows_durable_events_and_rewinds_only(api: Api) -> None:
    conversation = await api.create()
    async with follow(api, conversation, "?deltas=false") as stream:
        await stream.take(1)
        step = await api.start_step(conversation)
        step.delta("text")
        await step.seal(ModelResponded(text="text", model="demo:"))
        assert [frame.event for frame in await stream.take(2)] == ["step.started", "model.responded"]


async def test_a_follower_of_a_retried_step_is_rewound(api: Api) -> None:
    conversation = await api.create()
    async with follow(api, conversation) as stream:
        await stream.take(1)
        step = await api.start_step(conversation)
        step.delta("dead end")
        [_, delta] = await stream.take(2)
        again = await api.start_step(conversation, StepId(step._writer.step), attempt=2)
        step.delta(" of a zombie")
        again.delta("better")
        rewound, started, new = await stream.take(3)
    assert (delta.event, rewound.event, started.event) == ("model.delta", "step.rewound", "step.started")
    assert rewound.data["seq"] is None
    assert rewound.data["data"] == {"step": step._writer.step, "attempt": 2}
    assert (new.data["attempt"], new.data["data"]["text"]) == (2, "better")


@pytest.mark.parametrize(
    ("position", "code"),
    [
        ("what", "position.malformed"),
        ("1-zz-1", "position.malformed"),
        ("17", "position.malformed"),
        ("1-{tag}-1" + "-1.1" * 2000, "position.malformed"),
        ("1-{tag}-99999999999", "position.malformed"),
        ("1-{tag}-4294967296", "position.malformed"),
        ("1-{tag}-1-٣.1", "position.malformed"),
        ("1-{foreign}-1", "position.foreign"),
        ("1-{tag}-4000", "position.ahead"),
    ],
)
async def test_a_position_that_is_none_of_ours_is_a_problem_before_the_stream_starts(
    api: Api, position: str, code: str
) -> None:
    conversation, other = await api.create(), await api.create()
    text = position.format(tag=conversation[-8:], foreign=other[-8:])
    answer = await api.http.get(f"/v1/conversations/{conversation}/stream", params={"after": text})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["code"] == code
    if text.isascii():
        path = f"/v1/conversations/{conversation}/stream"
        by_header = await api.http.get(path, headers={"last-event-id": text})
        assert (by_header.status_code, by_header.json()["code"]) == (422, code)


async def test_silence_is_broken_by_a_comment(tmp_path: Path) -> None:
    async with open_api(tmp_path, ping_s=0.05) as api:
        conversation = await api.create()
        async with follow(api, conversation) as stream, anyio.create_task_group() as group:

            async def read() -> None:
                await stream.next()
                await stream.next()

            group.start_soon(read)
            await eventually(lambda: stream.comments.count(": ping") >= 3)
            group.cancel_scope.cancel()


async def test_a_stream_begins_with_how_long_to_wait_before_coming_back(api: Api) -> None:
    conversation = await api.create()
    async with api.http.stream("GET", f"/v1/conversations/{conversation}/stream") as response:
        async for chunk in response.aiter_bytes():
            assert chunk.startswith(b"retry: 1000\n\n")
            break


async def test_streams_end_cleanly_when_the_server_closes(api: Api) -> None:
    conversation = await api.create()
    async with follow(api, conversation) as first, follow(api, conversation) as second:
        await first.take(1)
        await second.take(1)
        api.parts.closing.set()
        with anyio.fail_after(5):
            assert await first.next() is None
            assert await second.next() is None
    assert api.app.state.outlive.followers == 0
    ready = await api.http.get("/readyz")
    assert (ready.status_code, ready.json()["parts"]["open"]) == (503, False)


async def test_a_client_that_leaves_frees_its_subscription(api: Api) -> None:
    conversation = await api.create()
    state = api.app.state.outlive
    all_are_there = anyio.Event()
    async with anyio.create_task_group() as group:

        async def come_and_go() -> None:
            async with follow(api, conversation) as stream:
                await stream.take(1)
                await all_are_there.wait()

        for _ in range(20):
            group.start_soon(come_and_go)
        await eventually(lambda: bool(state.followers == 20))
        all_are_there.set()
    await eventually(lambda: state.followers == 0)
    assert "outlive_followers 0.0" in (await api.http.get("/metrics")).text


async def test_a_follower_too_many_is_told_to_come_back(tmp_path: Path) -> None:
    async with open_api(tmp_path, followers_limit=1) as api:
        conversation = await api.create()
        async with follow(api, conversation) as stream:
            await stream.take(1)
            refused = await api.http.get(f"/v1/conversations/{conversation}/stream")
            assert (refused.status_code, refused.json()["code"]) == (503, "stream.full")
            assert refused.headers["retry-after"] == "5"
        await eventually(lambda: api.app.state.outlive.followers == 0)
        async with follow(api, conversation) as stream:
            await stream.take(1)


async def test_a_client_that_does_not_read_holds_up_nobody_and_misses_nothing(api: Api) -> None:
    conversation = await api.create()
    with socket.create_connection(api.address) as slow:
        _ask_for_stream(slow, api, conversation)
        await eventually(lambda: api.app.state.outlive.followers == 1)
        async with follow(api, conversation) as stream:
            for _ in range(40):
                await api.send(conversation, "y" * 60_000 * 4)
            frames = await stream.take(41)
            assert [frame.data["seq"] for frame in frames] == list(range(1, 42))
        seqs: list[int] = []
        await anyio.to_thread.run_sync(_read_until, slow, 41, seqs)
        assert seqs == list(range(1, 42))


async def test_a_client_that_takes_nothing_at_all_loses_its_place_and_can_come_back(tmp_path: Path) -> None:
    async with open_api(tmp_path, ping_s=0.1, stall_s=0.3) as api:
        conversation = await api.create()
        state = api.app.state.outlive
        with socket.create_connection(api.address) as stuck:
            _ask_for_stream(stuck, api, conversation)
            await eventually(lambda: state.followers == 1)
            # More than both kernels keep for it. Nothing more is said afterwards, so nothing but the ping would wait.
            for _ in range(3):
                await api.send(conversation, "y" * 6_000_000)
            await eventually(lambda: state.followers == 0)
            # Its connection is gone too, not only its place.
            await eventually(lambda: not _connections_to(api, stuck))
        # By a server with more patience: so much may take a reader longer on a busy host.
        async with serve(replace(api.parts, stall_s=60.0)) as patient, follow(patient, conversation) as stream:
            assert [frame.data["seq"] for frame in await stream.take(4)] == [1, 2, 3, 4]


async def test_a_client_that_reads_slowly_keeps_its_place(tmp_path: Path) -> None:
    async with open_api(tmp_path, ping_s=0.1, stall_s=1.0) as api:
        conversation = await api.create()
        with socket.create_connection(api.address) as slow:
            _ask_for_stream(slow, api, conversation)
            await eventually(lambda: api.app.state.outlive.followers == 1)
            for _ in range(3):
                await api.send(conversation, "y" * 6_000_000)
            seqs: list[int] = []
            started = anyio.current_time()
            await anyio.to_thread.run_sync(_read_until, slow, 4, seqs, 0.02)
            assert seqs == [1, 2, 3, 4]
            assert anyio.current_time() > started + 2 * api.parts.stall_s


def _connections_to(api: Api, client: socket.socket) -> list[Any]:
    address = client.getsockname()
    connections = api.server.server_state.connections
    return [each for each in connections if getattr(each, "client", None) == address]


def _ask_for_stream(connection: socket.socket, api: Api, conversation: str) -> None:
    host = f"{api.address[0]}:{api.address[1]}"
    path = f"/v1/conversations/{conversation}/stream"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())


def _read_until(connection: socket.socket, head: int, seqs: list[int], pause_s: float = 0.0) -> None:
    connection.settimeout(20)
    buffer = b""
    while not seqs or seqs[-1] < head:
        received = connection.recv(1 << 17)
        time.sleep(pause_s)
        assert received
        *lines, buffer = (buffer + received).split(b"\n")
        seqs += [int(line.split(b'"seq":')[1].split(b",")[0]) for line in lines if line.startswith(b"data: {")]


async def test_followers_of_one_conversation_share_what_was_encoded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlive.api import frames

    encoded: list[str] = []
    real = frames.encode_frame

    def count(conversation: ConversationId, frame: Any) -> bytes:
        encoded.append(frame.position)
        return real(conversation, frame)

    monkeypatch.setattr(frames, "encode_frame", count)
    conversation = await api.create()
    async with (
        httpx.AsyncClient(
            base_url=api.url,
            headers={"authorization": f"Bearer {TOKEN}"},
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        ) as http,
        anyio.create_task_group() as group,
    ):
        done = 0

        async def read() -> None:
            nonlocal done
            async with http.stream("GET", f"/v1/conversations/{conversation}/stream") as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and json.loads(line[6:])["seq"] == 4:
                        done += 1
                        return

        for _ in range(30):
            group.start_soon(read)
        await eventually(lambda: api.app.state.outlive.followers == 30)
        for _ in range(3):
            await api.send(conversation)
        await eventually(lambda: done == 30)
    assert len(encoded) == 4
