"""Artifacts over HTTP: listed from the log, fetched by their id, only ever saved by a browser."""

import pytest

from integration.api.problems import assert_problem
from integration.api.stack import Api
from outlive.base import ArtifactId, ConversationId, derive, new_effect_id, new_operation_id, to_text
from outlive.conversation.artifacts import Artifact
from outlive.conversation.events import ArtifactPublished, NewEvent
from outlive.conversation.log import Append

pytestmark = pytest.mark.anyio


async def publish(api: Api, conversation: ConversationId, name: str, content: bytes) -> ArtifactId:
    artifact = ArtifactId(derive("art", new_effect_id()))
    blob = await api.conversations.blobs.put(content)
    made = await api.parts.artifacts.put(
        Artifact(
            id=artifact,
            conversation=conversation,
            title=f"The {name}",
            name=name,
            media_type="text/html",
            size=len(content),
            blob=blob,
        )
    )
    said = ArtifactPublished(artifact=made.id, title=made.title, media_type=made.media_type, size=made.size)
    at = to_text(api.parts.clock.now())
    await api.conversations.append(Append(conversation, (NewEvent(said, at),), key=f"artifact/{artifact}", actor="x"))
    return artifact


async def test_what_was_published_is_listed_in_order_page_by_page_and_in_a_fork(api: Api) -> None:
    made = (await api.conversations.create(new_operation_id(), actor="x")).id
    ids = [await publish(api, made, f"{n}.html", b"x" * n) for n in range(3)]
    first = (await api.http.get(f"/v1/conversations/{made}/artifacts?limit=2")).json()
    assert [item["id"] for item in first["items"]] == ids[:2]
    rest = (await api.http.get(f"/v1/conversations/{made}/artifacts?limit=2&cursor={first['next']}")).json()
    assert [(item["id"], item["size"], item["title"]) for item in rest["items"]] == [(ids[2], 2, "The 2.html")]
    assert rest["next"] is None
    fork = (await api.http.post(f"/v1/conversations/{made}/fork", json={"at": 3})).json()["id"]
    shared = (await api.http.get(f"/v1/conversations/{fork}/artifacts")).json()
    assert [item["id"] for item in shared["items"]] == ids[:2]


async def test_the_bytes_of_an_artifact_are_saved_and_never_shown(api: Api) -> None:
    made = (await api.conversations.create(new_operation_id(), actor="x")).id
    artifact = await publish(api, made, 'ä"\r\n.html', b"<script>alert(1)</script>")
    shown = (await api.http.get(f"/v1/artifacts/{artifact}")).json()
    assert (shown["conversation"], shown["name"], shown["size"]) == (made, 'ä"\r\n.html', 25)
    answer = await api.http.get(f"/v1/artifacts/{artifact}/content")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A4%22%0D%0A.html"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("artifact", ["art_" + "0" * 32, "x", "..%2f..%2fetc", "art_" + "0" * 31])
async def test_an_artifact_that_is_not_there_is_not_found(api: Api, artifact: str) -> None:
    for path in (f"/v1/artifacts/{artifact}", f"/v1/artifacts/{artifact}/content"):
        assert_problem(await api.http.get(path), 404)
