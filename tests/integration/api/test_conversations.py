"""Every route of conversations, over a real socket: what is asked comes back, and is there afterwards."""

import base64

import pytest

from integration.api.stack import Api
from outlive.base import ConversationId, new_conversation_id
from outlive.conversation.events import ModelResponded

pytestmark = pytest.mark.anyio

FIELDS = (
    *("id", "agent", "title", "environment", "model", "metadata", "parent", "state", "turn", "machine", "head"),
    *("created_by", "created_at", "updated_at", "archived_at", "subagent_of"),
)
ENVELOPE = (*("id", "seq", "position", "conversation", "turn", "step", "attempt", "type", "v", "at", "actor", "data"),)


async def test_a_conversation_is_made_with_what_was_asked(api: Api) -> None:
    body = {
        "agent": "coder",
        "title": "Über alles",
        "environment": "base",
        "model": "demo:",
        "metadata": {"ticket": 17, "tags": ["a", None, 1.5], "big": 2**63},
    }
    answer = await api.http.post("/v1/conversations", json=body)
    made = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/conversations/{made['id']}"
    assert tuple(made) == FIELDS
    assert {name: made[name] for name in body} == body
    assert (made["state"], made["head"], made["parent"], made["archived_at"]) == ("idle", 1, None, None)
    assert made["created_by"] == (await api.parts.principals.authenticate("secret-token-of-the-owner")).id
    assert (await api.http.get(answer.headers["location"])).json() == made


async def test_a_list_is_paged_newest_first_without_gap_or_double(api: Api) -> None:
    made = [await api.create(title=f"number {number}") for number in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (
            await api.http.get("/v1/conversations", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        ).json()
        assert tuple(page) == ("items", "next")
        seen += [each["id"] for each in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made[::-1]
    exact = (await api.http.get("/v1/conversations", params={"limit": 7})).json()
    assert exact["next"] is None


async def test_a_search_finds_titles_and_messages(api: Api) -> None:
    titled = await api.create(title="the purple elephant")
    spoken = await api.create(title="something else")
    await api.send(spoken, "did anybody see a purple elephant")
    await api.create(title="neither")
    found = (await api.http.get("/v1/conversations", params={"q": "purple elephant"})).json()["items"]
    assert {each["id"] for each in found} == {titled, spoken}


async def test_an_archived_conversation_is_hidden_readable_and_takes_no_messages(api: Api) -> None:
    gone, kept = await api.create(title="gone"), await api.create(title="kept")
    await api.send(gone)
    for _ in range(2):  # archiving again changes nothing
        answer = await api.http.delete(f"/v1/conversations/{gone}", params={"interrupt": "false"})
        assert (answer.status_code, answer.content) == (204, b"")
    listed = (await api.http.get("/v1/conversations")).json()["items"]
    archived = (await api.http.get("/v1/conversations", params={"archived": "true"})).json()["items"]
    assert ([each["id"] for each in listed], [each["id"] for each in archived]) == ([kept], [gone])
    shown = (await api.http.get(f"/v1/conversations/{gone}")).json()
    assert shown["archived_at"] is not None
    assert shown["head"] == 3
    assert (await api.http.get(f"/v1/conversations/{gone}/events")).status_code == 200
    refused = await api.http.post(f"/v1/conversations/{gone}/messages", json={"text": "more"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conversation.archived")


async def test_a_message_is_in_the_log_when_it_is_answered(api: Api) -> None:
    conversation = await api.create()
    first, second = await api.send(conversation, "one\0two \U0001f600"), await api.send(conversation, "three")
    assert tuple(first) == ("message_id", "turn_id", "seq")
    assert (first["seq"], second["seq"]) == (2, 3)
    assert first["turn_id"] == second["turn_id"]  # it joined the turn that the first one opened
    [event] = await api.conversations.read(conversation, 1, 1)
    assert (event.data["text"], event.data["message"]) == ("one\0two \U0001f600", first["message_id"])


async def test_attachments_are_kept_as_blobs_and_come_back_as_the_same_bytes(api: Api) -> None:
    conversation = await api.create()
    content = bytes(range(256)) * 10
    path = f"/v1/conversations/{conversation}/messages"
    given = {"name": "a.bin", "media_type": "application/x-thing", "data": base64.b64encode(content).decode()}
    assert (await api.http.post(path, json={"text": "see", "attachments": [given]})).status_code == 202
    [event] = await api.conversations.read(conversation, 1, 1)
    [attachment] = event.data["attachments"]
    assert (attachment["name"], attachment["size"]) == ("a.bin", len(content))
    answer = await api.http.get(f"/v1/blobs/{attachment['blob']}")
    assert answer.content == content
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = {"name": "b.bin", "media_type": "application/x-thing", "blob": attachment["blob"]}
    assert (await api.http.post(path, json={"text": "again", "attachments": [again]})).status_code == 202
    unknown = again | {"blob": "b3_" + "0" * 64}
    refused = await api.http.post(path, json={"text": "again", "attachments": [unknown]})
    assert (refused.status_code, refused.json()["code"]) == (422, "attachment.unknown_blob")


async def test_events_are_paged_in_order_with_their_whole_envelope(api: Api) -> None:
    conversation = await api.create(title="t")
    big = "x" * 200_000  # goes to the object store, and comes back whole
    for text in ("one", big, "three"):
        await api.send(conversation, text)
    path = f"/v1/conversations/{conversation}/events"
    whole = (await api.http.get(path)).json()
    assert whole["next"] is None
    assert [event["seq"] for event in whole["items"]] == [1, 2, 3, 4]
    assert all(tuple(event) == ENVELOPE for event in whole["items"])
    assert whole["items"][2]["data"]["text"] == big
    first = (await api.http.get(path, params={"limit": 3})).json()
    rest = (await api.http.get(path, params={"after": first["next"]})).json()
    assert first["items"] + rest["items"] == whole["items"]
    assert (await api.http.get(path, params={"cursor": first["next"]})).json() == rest
    assert (await api.http.get(path, params={"after": 400})).json() == {"items": [], "next": None}


async def test_a_transcript_folds_retries(api: Api) -> None:
    conversation = await api.create()
    await api.send(conversation, "question")
    step = await api.start_step(conversation)
    step.delta("half an ans")
    again = await api.start_step(conversation, step._writer.step, attempt=2)
    await again.seal(ModelResponded(text="answer", model="demo:"))
    shown = (await api.http.get(f"/v1/conversations/{conversation}/transcript")).json()
    assert tuple(shown) == ("conversation", "head", "position", "state", "items")
    assert (shown["conversation"], shown["head"], shown["state"]) == (conversation, 5, "running")
    assert [item["text"] for item in shown["items"]] == ["question", "answer"]


@pytest.mark.parametrize("way", ["fork", "parent"])
async def test_a_fork_shares_the_past_and_goes_its_own_way(api: Api, way: str) -> None:
    parent = await api.create(agent="coder", title="trunk", metadata={"a": 1}, model="demo:")
    await api.send(parent, "one")
    await api.send(parent, "two")
    if way == "fork":
        answer = await api.http.post(f"/v1/conversations/{parent}/fork", json={"at": 2, "model": "demo:other"})
    else:
        body = {"parent": {"conversation": parent, "at": 2}, "model": "demo:other"}
        answer = await api.http.post("/v1/conversations", json=body)
    fork = answer.json()
    assert answer.status_code == 201
    assert fork["parent"] == {"conversation": parent, "at": 2}
    assert (fork["agent"], fork["title"], fork["metadata"], fork["model"]) == ("coder", "trunk", {"a": 1}, "demo:other")
    await api.send(fork["id"], "three")
    events = (await api.http.get(f"/v1/conversations/{fork['id']}/events")).json()["items"]
    assert [event["data"].get("text") for event in events] == [None, "one", None, "three"]
    assert (await api.http.get(f"/v1/conversations/{parent}")).json()["head"] == 3


async def test_a_fork_without_a_place_is_made_at_the_head(api: Api) -> None:
    parent = await api.create()
    await api.send(parent, "one")
    for body in (b"", b"{}"):
        answer = await api.http.post(f"/v1/conversations/{parent}/fork", content=body)
        assert answer.json()["parent"] == {"conversation": parent, "at": 2}
    ahead = await api.http.post(f"/v1/conversations/{parent}/fork", json={"at": 99})
    assert ahead.status_code in (409, 422)
    replayed = await api.http.post(f"/v1/conversations/{parent}/replay", json={"at": 99, "model": "demo:"})
    assert (replayed.status_code, replayed.json()) == (ahead.status_code, ahead.json()), "a replay is refused alike"
    for wish, status in (("none", 201), ("fork", 503), ("both", 422)):  # there are no machines here
        answer = await api.http.post(f"/v1/conversations/{parent}/fork", json={"machine": wish})
        assert answer.status_code == status


async def test_what_does_not_exist_is_not_found_anywhere(api: Api) -> None:
    for unknown in (new_conversation_id(), ConversationId("conv_x"), ConversationId("turn_" + "0" * 32)):
        path = f"/v1/conversations/{unknown}"
        for method, tail, body in (
            *(("GET", "", None), ("DELETE", "", None), ("GET", "/events", None), ("GET", "/transcript", None)),
            *(("GET", "/stream", None), ("POST", "/messages", {"text": "x"}), ("POST", "/fork", {})),
        ):
            answer = await api.http.request(method, path + tail, json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "conversation.not_found"), (method, tail)
    missing = await api.http.get("/v1/blobs/b3_" + "0" * 64)
    assert (missing.status_code, missing.json()["kind"]) == (404, "not_found")


async def test_a_conversation_needs_no_body(api: Api) -> None:
    for headers in ({}, {"content-type": "application/json"}):
        made = await api.http.post("/v1/conversations", content=b"", headers=headers)
        assert made.status_code == 201, made.text
        assert (made.json()["title"], made.json()["metadata"]) == (None, {})
