"""A corpus of hostile input: always a problem in our shape or a clean answer, never a 500, and nothing is lost."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, Api, open_api
from outlive.api.body import VALUES_LIMIT
from outlive.api.gate import BODY_LIMIT

pytestmark = pytest.mark.anyio

DEEP = 64


def nested(depth: int, opening: str = '{"a":', closing: str = "}", inner: str = "1") -> str:
    return opening * depth + inner + closing * depth


def attached(*attachments: dict[str, Any]) -> bytes:
    return json.dumps({"text": "x", "attachments": attachments}).encode()


# What it is, and the raw body. None of it is a message that could be taken.
MESSAGES: dict[str, bytes] = {
    "nothing": b"",
    "whitespace": b" \n",
    "not json": b"hello",
    "half an object": b'{"text": "x"',
    "two objects": b'{"text": "x"}{"text": "y"}',
    "null": b"null",
    "a list": b'[{"text": "x"}]',
    "a string": b'"text"',
    "a number": b"1",
    "byte order mark": b'\xef\xbb\xbf{"text": "x"}',
    "utf-16": '{"text": "x"}'.encode("utf-16"),
    "utf-32": '{"text": "x"}'.encode("utf-32-le"),
    "bad utf-8": b'{"text": "\xff\xfe"}',
    "cut utf-8": b'{"text": "\xe2\x98"}',
    "surrogate as utf-8": b'{"text": "\xed\xa0\x80"}',
    "overlong utf-8": b'{"text": "\xc0\xaf"}',
    "lone high surrogate": b'{"text": "\\ud800"}',
    "lone low surrogate": b'{"text": "x\\udc00y"}',
    "swapped surrogates": b'{"text": "\\udc00\\ud800"}',
    "surrogate in a key": b'{"text": "x", "\\ud800": 1}',
    "raw NUL in a string": b'{"text": "a\0b"}',
    "raw NUL outside": b'{"text": "x"}\0',
    "raw line break in a string": b'{"text": "a\nb"}',
    "NaN": b'{"text": NaN}',
    "infinity": b'{"text": -Infinity}',
    "a number as text": b'{"text": 5}',
    "true as text": b'{"text": true}',
    "null as text": b'{"text": null}',
    "a list as text": b'{"text": ["x"]}',
    "an object as text": b'{"text": {"text": "x"}}',
    "empty text": b'{"text": ""}',
    "no text": b"{}",
    "unknown field": b'{"text": "x", "surprise": 1}',
    "prototype": b'{"text": "x", "__proto__": {}}',
    "model that is none": b'{"text": "x", "model": ""}',
    "model with NUL": b'{"text": "x", "model": "a\\u0000b"}',
    "model too long": b'{"text": "x", "model": "' + b"m" * 201 + b'"}',
    "deep object": nested(100_000).encode(),
    "deep list": nested(100_000, "[", "]").encode(),
    "deep and open": b"[" * 1_000_000,
    "deep inside": f'{{"text": {nested(900, "[", "]")}}}'.encode(),
    "huge integer": b'{"text": ' + b"9" * 100_000 + b"}",
    "huge float": b'{"text": 1e999999}',
    "many digits": b'{"text": 0.' + b"1" * 1_000_000 + b"}",
    "attachments that are none": b'{"text": "x", "attachments": {}}',
    "attachment without data": attached({"name": "a", "media_type": "a/b"}),
    "attachment with both": attached({"name": "a", "media_type": "a/b", "data": "", "blob": "b3_" + "0" * 64}),
    "attachment not base64": attached({"name": "a", "media_type": "a/b", "data": "!!"}),
    "attachment cut base64": attached({"name": "a", "media_type": "a/b", "data": "abc"}),
    "attachment with more than base64": attached({"name": "a", "media_type": "a/b", "data": "é"}),
    "attachment of the wrong type": attached({"name": "a", "media_type": "a/b", "data": [1]}),
    "attachment with a path": attached({"name": "a", "media_type": "a/b", "blob": "../../etc"}),
    "attachment without a name": attached({"name": "", "media_type": "a/b", "data": ""}),
    "attachment with a header": attached({"name": "a", "media_type": "a/b\r\nx: y", "data": ""}),
    "too many attachments": attached(*[{"name": "a", "media_type": "a/b", "data": ""}] * 33),
    "many unknown fields": json.dumps({"text": "x"} | {f"f{number}": number for number in range(5000)}).encode(),
    "long unknown field": json.dumps({"text": "x", "f" * 1_000_000: 1}).encode(),
}


async def test_a_hostile_body_is_a_problem_and_leaves_nothing(api: Api) -> None:
    conversation = await api.create()
    path = f"/v1/conversations/{conversation}/messages"
    for name, body in MESSAGES.items():
        answer = await api.http.post(path, content=body, headers={"content-type": "application/json"})
        assert assert_problem(answer, 422)["kind"] == "invalid", name
        assert len(answer.content) < 10_000, name
        assert (await api.conversations.get(conversation)).head == 1, name


CONVERSATIONS: dict[str, Any] = {
    "metadata too big": {"metadata": {"a": "x" * 40_000}},
    "metadata with NUL": {"metadata": {"a": ["b", {"c": "d\0"}]}},
    "metadata with NUL in a key": {"metadata": {"\0": 1}},
    "metadata that is none": {"metadata": []},
    "title with NUL": {"title": "a\0b"},
    "title with a line break": {"title": "a\nb"},
    "title too long": {"title": "x" * 501},
    "title of the wrong type": {"title": 7},
    "parent that is none": {"parent": "conv_1"},
    "parent of the wrong shape": {"parent": {"conversation": "../x", "at": 1}},
    "parent without a place": {"parent": {"conversation": "conv_" + "0" * 32}},
    "parent at nothing": {"parent": {"conversation": "conv_" + "0" * 32, "at": 0}},
    "parent far away": {"parent": {"conversation": "conv_" + "0" * 32, "at": 2**32}},
    "parent before the start": {"parent": {"conversation": "conv_" + "0" * 32, "at": -1}},
    "parent at a half": {"parent": {"conversation": "conv_" + "0" * 32, "at": 1.5}},
    "parent at a word": {"parent": {"conversation": "conv_" + "0" * 32, "at": "1"}},
    "integer beyond 64 bits": {"metadata": {"a": 2**64}},
    "integer far beyond": {"metadata": {"a": 10**4000}},
    "nested too deep": {"metadata": json.loads(nested(DEEP))},
}


async def test_a_hostile_conversation_is_not_made(api: Api) -> None:
    for name, body in CONVERSATIONS.items():
        answer = await api.http.post("/v1/conversations", content=json.dumps(body))
        assert assert_problem(answer, 422)["kind"] == "invalid", name
        assert (await api.http.get("/v1/conversations")).json()["items"] == [], name


KEPT: dict[str, Any] = {
    "unusual text": "\x01\x7f\u0085\u2028\u2029\ufeff\ufffe\U0010ffff",
    "right to left": "\u202eevil\u202c",
    "escaped looking": '\\u0000 \\ud800 \\" \\n',
    "as deep as it goes": json.loads(nested(DEEP - 2)),
    "greatest and least": [2**64 - 1, -(2**63), 1.7976931348623157e308, 5e-324, -0.0],
    "html": "<script>alert(1)</script>",
    "sql": "'; DROP TABLE events; --",
    "empty key": {"": None},
}


async def test_what_is_strange_but_right_comes_back_unchanged(api: Api) -> None:
    for name, value in KEPT.items():
        conversation = await api.create(metadata={"kept": value})
        shown = (await api.http.get(f"/v1/conversations/{conversation}")).json()
        assert json.dumps(shown["metadata"]["kept"]) == json.dumps(value), name
        text = json.dumps(value, ensure_ascii=False)
        await api.send(conversation, text)
        events = (await api.http.get(f"/v1/conversations/{conversation}/events")).json()["items"]
        assert events[1]["data"]["text"] == text, name


async def test_of_two_equal_keys_the_last_one_counts(api: Api) -> None:
    answer = await api.http.post("/v1/conversations", content=b'{"title": "a", "title": "b"}')
    assert answer.json()["title"] == "b"


async def test_another_content_type_is_refused(api: Api) -> None:
    for given in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "x/json"):
        answer = await api.http.post("/v1/conversations", content=b"{}", headers={"content-type": given})
        assert assert_problem(answer, 415)["code"] == "request.media_type", given


async def test_json_by_any_of_its_names_is_taken(api: Api) -> None:
    for given in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"):
        answer = await api.http.post("/v1/conversations", content=b"{}", headers={"content-type": given})
        assert answer.status_code == 201, given


async def test_a_list_with_a_hostile_query_is_refused(api: Api) -> None:
    for query in (
        *("limit=0", "limit=1001", "limit=-1", "limit=x", "limit=1.5", "limit=", "limit=99999999999999999999999"),
        *("cursor=x", "cursor=conv_1", "cursor=" + "x" * 5000, "archived=maybe", "q=%00", "q=" + "x" * 501),
    ):
        assert_problem(await api.http.get(f"/v1/conversations?{query}"), 422)


async def test_a_search_for_anything_is_only_a_search(api: Api) -> None:
    await api.create(title="x")
    for words in ('"', "*", "a AND", "NEAR(", "-", "'", "%", "_", "\ud7ff", "(" * 400, "a:b", "^", "\\", "\x01", " "):
        answer = await api.http.get("/v1/conversations", params={"q": words})
        assert answer.status_code == 200, words
    assert (await api.http.get("/v1/conversations?q=%ff%fe")).json()["items"] == []


async def test_events_after_nowhere_are_refused(api: Api) -> None:
    path = f"/v1/conversations/{await api.create()}/events"
    for query in (
        "after=-1",
        "after=4294967296",
        "after=1e3",
        "after=x",
        "after=",
        "after=%00",
        "limit=0",
        "cursor=-1",
    ):
        assert_problem(await api.http.get(f"{path}?{query}"), 422)
    assert (await api.http.get(f"{path}?after=4294967295")).json() == {"items": [], "next": None}


async def test_a_wrong_id_is_the_id_of_nothing(api: Api) -> None:
    zeros = "0" * 32
    for wrong in (
        *("x", "conv_", f"conv_{zeros[1:]}", f"conv_0{zeros}", f"CONV_{zeros}", "conv_" + "G" * 32, "%00", "%ff"),
        *(
            "..%2f..%2fetc",
            f"conv_{zeros}%00",
            f"conv_{zeros}%0a",
            "%d9%a3" * 8,
            "x" * 5000,
            "%f0%9f",
            "conv_" + "٣" * 32,
        ),
    ):
        for tail in ("", "/events", "/transcript", "/stream", "/queue"):
            assert_problem(await api.http.get(f"/v1/conversations/{wrong}{tail}"), 404)
        assert_problem(await api.http.post(f"/v1/conversations/{wrong}/messages", json={"text": "x"}), 404)
        assert_problem(await api.http.post(f"/v1/conversations/{wrong}/fork", json={}), 404)
        assert_problem(await api.http.post(f"/v1/conversations/{wrong}/replay", json={"model": "demo:"}), 404)
        assert_problem(await api.http.delete(f"/v1/conversations/{wrong}"), 404)
        assert_problem(await api.http.get(f"/v1/blobs/{wrong}"), 404)


async def test_a_body_at_the_limit_is_taken_whole_and_one_beyond_is_refused(api: Api) -> None:
    conversation = await api.create()
    path = f"/v1/conversations/{conversation}/messages"
    frame = len('{"text": ""}')
    text = "x" * (BODY_LIMIT - frame)
    taken = await api.http.post(path, content=f'{{"text": "{text}"}}'.encode())
    assert taken.status_code == 202, taken.text
    events = await api.http.get(f"/v1/conversations/{conversation}/events", params={"after": 1})
    assert events.json()["items"][0]["data"]["text"] == text
    refused = await api.http.post(path, content=f'{{"text": "{text}x"}}'.encode())
    problem = assert_problem(refused, 413)
    assert (problem["kind"], problem["limit"], problem["size"]) == ("exhausted", BODY_LIMIT, BODY_LIMIT + 1)
    assert (await api.conversations.get(conversation)).head == 2
    # The body was read, so the connection goes on.
    assert (await api.http.get("/healthz")).status_code == 200


# Few bytes, many values: millions of them would hold up everybody else.
CROWDED: dict[str, bytes] = {
    "unknown fields": b'{"title":"x"' + b"".join(b',"f%07d":1' % number for number in range(1_200_000)) + b"}",
    "empty lists": b'{"metadata":{"a":[' + b"[]," * (4 * 1024 * 1024) + b"[]]}}",
    "empty texts": b'{"metadata":{"a":[' + b'"",' * (4 * 1024 * 1024) + b'""]}}',
    "escaped quotes without an end": b'{"a":[' + b"1," * 2 * VALUES_LIMIT + b'1,"' + b'\\"' * (7 * 1024 * 1024),
    "the same field": b'{"title":"x"' + b',"title":"x"' * 1_000_000 + b"}",
}


@pytest.mark.parametrize("name", CROWDED)
async def test_a_body_of_too_many_values_is_refused_before_it_holds_up_others(api: Api, name: str) -> None:
    slowest = 0.0
    body = CROWDED[name]
    assert len(body) <= BODY_LIMIT
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            nonlocal slowest
            while True:
                started = anyio.current_time()
                assert (await api.http.get("/healthz")).status_code == 200
                slowest = max(slowest, anyio.current_time() - started)

        group.start_soon(ask)
        answer = await api.http.post("/v1/conversations", content=body)
        group.cancel_scope.cancel()
    problem = assert_problem(answer, 422)
    assert (problem["code"], problem["limit"]) == ("request.too_many_values", VALUES_LIMIT)
    assert slowest < 6, name  # unbounded, each of them takes more than 10 s, on a quiet machine


async def test_of_many_unknown_fields_the_first_are_named(api: Api) -> None:
    body = {f"f{number}": number for number in range(50_000)}
    problem = assert_problem(await api.http.post("/v1/conversations", json=body), 422)
    assert problem["code"] == "request.invalid"
    assert [error["at"] for error in problem["errors"]] == [f"body.f{number}" for number in range(20)]
    assert {error["type"] for error in problem["errors"]} == {"extra_forbidden"}


async def test_a_large_text_full_of_commas_and_brackets_is_a_text(api: Api) -> None:
    conversation = await api.create()
    text = '{["a",],}' * 300_000
    await api.send(conversation, text)
    events = await api.http.get(f"/v1/conversations/{conversation}/events", params={"after": 1})
    assert events.json()["items"][0]["data"]["text"] == text


def _raw(api: Api, head: str) -> bytes:
    host = f"{api.address[0]}:{api.address[1]}"
    return f"POST /v1/conversations HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n{head}\r\n".encode()


def _exchange(api: Api, head: str, send: Callable[[socket.socket], None]) -> bytes:
    """All that comes back until the server closes."""
    with socket.create_connection(api.address, timeout=20) as connection:
        connection.sendall(_raw(api, head))
        with suppress(OSError):  # it stopped listening
            send(connection)
        received = b""
        with suppress(ConnectionError):
            while chunk := connection.recv(65536):
                received += chunk
        return received


@pytest.mark.parametrize("limit", ["body_silence_s", "body_deadline_s"])
async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, limit: str) -> None:
    async with open_api(tmp_path, **{limit: 0.3}) as api:
        head = "Content-Length: 10\r\nContent-Type: application/json\r\n"
        answer = await anyio.to_thread.run_sync(_exchange, api, head, lambda connection: connection.sendall(b"{"))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer
        assert b'"request.too_slow"' in answer


async def test_a_sender_that_leaves_in_the_middle_leaves_nothing(api: Api) -> None:
    def send_half() -> None:
        with socket.create_connection(api.address) as connection:
            connection.sendall(_raw(api, "Content-Length: 100\r\n") + b'{"title": ')

    for _ in range(5):
        await anyio.to_thread.run_sync(send_half)
    assert (await api.http.get("/v1/conversations")).json()["items"] == []
