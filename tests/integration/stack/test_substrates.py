"""The stack on PostgreSQL, Redis and S3: the same promises from other substrates, and a clear word when one is away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.stack.homes import Home
from services.postgres import run_postgres
from services.redis import redis_service
from services.seaweedfs import BUCKET, REGION, SeaweedService, seaweedfs

__all__ = ["seaweedfs"]  # pytest finds the fixture here


@pytest.fixture
def home(tmp_path: Path, seaweedfs: SeaweedService) -> Iterator[Home]:
    s3 = seaweedfs
    with run_postgres() as postgres, redis_service() as redis:
        home = Home(
            tmp_path / "home",
            OUTLIVE_DATABASE__URL=postgres.create_database("stack"),
            OUTLIVE_FEED__URL=redis.url,
            OUTLIVE_OBJECTS__URL=f"s3://{BUCKET}/stack",
            OUTLIVE_OBJECTS__ENDPOINT=s3.endpoint,
            OUTLIVE_OBJECTS__REGION=REGION,
            OUTLIVE_OBJECTS__ACCESS_KEY=s3.credentials.access_key_id,
            OUTLIVE_OBJECTS__SECRET_KEY=s3.credentials.secret_access_key,
        )
        yield home
        home.stop()


def test_a_stack_on_other_substrates_keeps_its_data_and_names_the_one_that_is_away(home: Home) -> None:
    home.up()
    conversation = home.create("far away")
    home.call("POST", f"/v1/conversations/{conversation}/messages", {"text": "x" * 100_000})  # goes to S3 by itself
    home.kill(home.api_pid())
    assert home.titles() == ["far away"]
    [_, sent, *_] = home.call("GET", f"/v1/conversations/{conversation}/events")["items"]  # an answer may follow
    assert sent["data"]["text"] == "x" * 100_000
    assert {path.name for path in home.path.iterdir()} == {"endpoint.json", "logs", "node.token", "run", "temporal"}

    well = home.run("doctor", "--json")
    assert well.returncode == 0, well.stdout
    away = {"OUTLIVE_FEED__URL": "redis://:secret-of-mine@127.0.0.1:1", "OUTLIVE_OBJECTS__SECRET_KEY": "wrong"}
    ill = home.run("doctor", "--json", **away)
    assert ill.returncode == 1
    found = {each["name"]: each["level"] for each in json.loads(ill.stdout)["findings"]}
    assert (found["database"], found["feed"], found["objects"]) == ("ok", "fail", "fail")
    shown = well.stdout + ill.stdout + ill.stderr
    for secret in ("secret-of-mine", home.environment["OUTLIVE_OBJECTS__SECRET_KEY"]):
        assert secret not in shown
