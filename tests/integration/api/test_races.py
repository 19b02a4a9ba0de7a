"""Races over HTTP: what is refused, and what becomes of contestants. Nobody answers here; crash tests race for real."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration.api.machines import MachineApi, open_machine_api
from integration.api.problems import assert_problem
from integration.api.stack import TOKEN, fresh_key
from outlive import AsyncClient
from outlive.base import derive, new_conversation_id
from outlive.loop.races.races import Races
from outlive.loop.races.sweeper import RaceSweeper
from outlive.testing.races import a_race

pytestmark = pytest.mark.anyio

LONG_AGO = "2020-01-01T00:00:00.000000Z"
TWO: list[dict[str, Any]] = [{"model": "demo:a"}, {"agent": "coder"}]


@pytest.fixture
async def api(tmp_path: Path, anyio_backend: str) -> AsyncIterator[MachineApi]:
    async with open_machine_api(tmp_path) as api:
        yield api


async def test_a_race_of_words_is_forks_with_the_same_prompt_and_one_is_kept(api: MachineApi) -> None:
    of = await api.api.create(model="demo:")
    path, key = f"/v1/conversations/{of}/races", fresh_key()
    answer = await api.http.post(path, json={"prompt": "Go", "contestants": TWO}, headers=key)
    assert answer.status_code == 201
    race = answer.json()
    assert answer.headers["location"] == f"/v1/races/{race['id']}"
    again = await api.http.post(path, json={"prompt": "Go", "contestants": TWO}, headers=key)
    assert again.json()["id"] == race["id"]
    assert (await api.http.get(f"/v1/races/{race['id']}")).json() == race
    shown = [(each["model"], each["agent"], each["state"], each["machine"]) for each in race["contestants"]]
    assert shown == [("demo:a", None, "running", None), ("demo:", "coder", "running", None)]
    first, second = (each["conversation"] for each in race["contestants"])
    for each in (first, second):
        events = (await api.http.get(f"/v1/conversations/{each}/events?after=1")).json()["items"]
        assert [(event["type"], event["data"].get("text")) for event in events] == [
            ("conversation.created", None),
            ("message.sent", "Go"),
        ]
    chosen = await api.http.post(f"/v1/races/{race['id']}/choose", json={"conversation": second})
    assert (chosen.json()["state"], chosen.json()["chosen"]) == ("chosen", second)
    assert [each["state"] for each in chosen.json()["contestants"]] == ["let_go", "chosen"]
    listed = {each["id"] for each in (await api.http.get("/v1/conversations")).json()["items"]}
    assert listed == {of, second}
    refused = await api.http.post(f"/v1/races/{race['id']}/choose", json={"conversation": first})
    assert assert_problem(refused, 409)["code"] == "race.already_chosen"


async def test_a_race_that_is_asked_for_again_with_a_key_of_ones_own_is_the_same(api: MachineApi) -> None:
    of = await api.api.create(model="demo:")
    async with AsyncClient(api.api.url, TOKEN) as client:
        asked = await client.conversations.get(of)
        races = [await asked.race("Go", TWO, idempotency_key="nightly-1") for _ in range(2)]
        other = await asked.race("Go", TWO)
    assert races[0].id == races[1].id != other.id


async def test_one_that_cannot_be_started_is_out_and_the_others_run(api: MachineApi) -> None:
    """Recorded by one who died; what it had made of the first contestant is gone when the sweeper goes on with it."""
    of, parts = await api.api.create(), api.api.parts
    assert parts.races is not None
    parent = await parts.conversations.get(of)
    race = await parts.races.create(a_race(conversation=of, at=parent.head, source=None, changed_at=LONG_AGO))
    made = await parts.conversations.fork(race.operation(0), parent, race.at, actor=race.owner)
    await parts.conversations.archive(made.id, actor=race.owner)
    early = await api.http.post(f"/v1/races/{race.id}/choose", json={"conversation": made.id})
    assert assert_problem(early, 409)["code"] == "race.starting"
    races = Races(parts.races, parts.conversations, None, None, parts.clock)
    assert await RaceSweeper(races, parts.races, parts.clock, every_s=1, settle_s=0).sweep() == 1
    shown = (await api.http.get(f"/v1/races/{race.id}")).json()
    assert [each["state"] for each in shown["contestants"]] == ["failed", "running", "running"]
    assert "let go" in shown["contestants"][0]["reason"]
    refused = await api.http.post(f"/v1/races/{race.id}/choose", json={"conversation": made.id})
    assert assert_problem(refused, 409)["code"] == "race.not_started"
    chosen = await api.http.post(f"/v1/races/{race.id}/choose", json={"conversation": race.conversations[1]})
    assert chosen.json()["state"] == "chosen"


async def test_what_cannot_be_raced_is_refused_with_the_reason(api: MachineApi) -> None:
    of = await api.api.create()
    wrong: list[Any] = [[], [{}], [{}] * 9, [{}, {"who": 1}], "two"]
    for contestants in wrong:
        answer = await api.http.post(f"/v1/conversations/{of}/races", json={"prompt": "x", "contestants": contestants})
        assert_problem(answer, 422)
    for prompt in ("", "x" * 100_001, None):
        answer = await api.http.post(f"/v1/conversations/{of}/races", json={"prompt": prompt, "contestants": TWO})
        assert_problem(answer, 422)
    body = {"prompt": "x", "contestants": [{"agent": "nobody"}, {}]}
    assert_problem(await api.http.post(f"/v1/conversations/{of}/races", json=body), 404)
    body = {"prompt": "x", "contestants": [{"model": "gpt"}, {"model": "demo:a"}]}
    unknown = await api.http.post(f"/v1/conversations/{of}/races", json=body)
    assert assert_problem(unknown, 422)["code"] == "model.unknown_provider"
    assert [each["id"] for each in (await api.http.get("/v1/conversations")).json()["items"]] == [of]
    body = {"prompt": "x", "contestants": TWO}
    assert_problem(await api.http.post(f"/v1/conversations/{new_conversation_id()}/races", json=body), 404)
    for race in ("race_x", derive("race", of), "conv_1"):
        assert_problem(await api.http.get(f"/v1/races/{race}"), 404)
        chosen = await api.http.post(f"/v1/races/{race}/choose", json={"conversation": of})
        assert_problem(chosen, 404)


async def test_a_server_without_races_says_so(tmp_path: Path) -> None:
    async with open_machine_api(tmp_path, races=None) as api:
        of = await api.api.create()
        answer = await api.http.post(f"/v1/conversations/{of}/races", json={"prompt": "x", "contestants": TWO})
        assert assert_problem(answer, 503)["code"] == "races.off"
