"""The OpenAPI document is made when it is asked for, once, however many ask."""

import anyio
import fastapi.openapi.utils
import pytest

from integration.api.stack import Api
from outlive.api import openapi

pytestmark = pytest.mark.anyio

MANY = 8


async def test_whoever_asks_for_the_document_at_once_gets_the_same(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def count(**fields: object) -> object:
        made.append(fields["title"])
        return fastapi.openapi.utils.get_openapi(**fields)  # type: ignore[arg-type]

    monkeypatch.setattr(openapi, "get_openapi", count)
    said: list[bytes] = []

    async def ask() -> None:
        said.append((await api.http.get("/openapi.json")).raise_for_status().content)

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask)
    assert len(said) == MANY
    assert len(set(said)) == 1
    assert made == ["Outlive"]
