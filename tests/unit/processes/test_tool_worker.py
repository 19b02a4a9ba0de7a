"""What a worker of users' tools is given, and what it is not."""

import logging
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from outlive.base import ConflictError, InvalidError, UnavailableError
from outlive.loop.queues import LOOP
from outlive.loop.tools.own.offers import decide_offer
from outlive.loop.tools.own.wire import Offer, OfferAnswer
from outlive.processes.tool_worker import forget_secrets, named_queue, put_offer, queue_of, renew
from outlive.wiring.own_tools import only_for_tools
from outlive.wiring.settings import read_settings


def test_settings_of_ours_and_keys_of_providers_are_dropped_from_the_environment() -> None:
    environment = {
        "PATH": "/bin",
        "ACME_TOKEN": "mine",
        "OUTLIVE_HOME": "/h",
        "OUTLIVE_URL": "u",
        "OUTLIVE_TOKEN": "t",
        "OUTLIVE_DATABASE__URL": "x",
        "outlive_objects__secret_key": "x",
        "ANTHROPIC_API_KEY": "x",
        "OPENAI_API_KEY": "x",
    }
    forget_secrets(environment)
    assert sorted(environment) == ["ACME_TOKEN", "OUTLIVE_HOME", "OUTLIVE_TOKEN", "OUTLIVE_URL", "PATH"]


def test_of_the_settings_it_keeps_only_where_temporal_and_the_objects_are(tmp_path: Path) -> None:
    secret = "x" * 40
    settings = read_settings(
        {
            "home": tmp_path,
            "temporal": {"address": "temporal:7233"},
            "objects": {"url": "s3://bucket", "secret_key": "of the bucket"},
            "database": {"url": f"postgresql://{secret}@db/x"},
            "feed": {"url": f"redis://{secret}@feed"},
            "api": {"token": secret},
            "node": {"token": secret},
        }
    )
    kept = only_for_tools(settings)
    assert (kept.home, kept.temporal, kept.objects) == (tmp_path, settings.temporal, settings.objects)
    assert kept.objects.secret_key == SecretStr("of the bucket")
    values = [*kept.database, *kept.feed, *kept.api, *kept.node]
    assert not any(secret in value.get_secret_value() for _, value in values if isinstance(value, SecretStr))
    assert not kept.file


def test_the_same_tools_have_the_same_queue_whatever_their_order() -> None:
    assert queue_of(["b", "a:x", "b"]) == queue_of(["a:x", "b"]) == "outlive-tools/a:x+b"
    assert len(queue_of([f"module_{n}" for n in range(100)])) < 60


def test_a_queue_of_tools_is_never_one_of_ours() -> None:
    assert named_queue(LOOP) == "outlive-tools/outlive-loop"
    assert named_queue("outlive-tools/mine") == named_queue("mine") == "outlive-tools/mine"
    with pytest.raises(InvalidError, match="queue of tools"):
        decide_offer((), Offer(queue=LOOP, tools=()), "2026-01-02T00:00:00.000000Z")


class Store:
    """Away the first time."""

    def __init__(self) -> None:
        self.tries = 0

    async def put(self, content: bytes) -> str:
        self.tries += 1
        if self.tries == 1:
            raise UnavailableError("objects.away", "It does not answer.")
        return "b3_1"


class Ours:
    """A worker of ours, as Temporal reaches it."""

    def __init__(self, *answers: OfferAnswer) -> None:
        self._answers = iter(answers)

    async def execute_activity(self, *_: object, **__: object) -> OfferAnswer:
        return next(self._answers)


@pytest.mark.anyio
async def test_a_worker_outlives_a_store_that_is_away_and_an_offer_that_is_refused_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offer, store = Offer(queue=named_queue("mine"), tools=()), cast("Any", Store())
    ours = cast("Any", Ours(OfferAnswer(), OfferAnswer(refused="taken"), OfferAnswer(refused="taken")))
    await put_offer(ours, store, offer)
    assert store.tries == 2
    with pytest.raises(ConflictError, match="taken"):  # when it starts, that is its end
        await put_offer(ours, store, offer)
    with caplog.at_level(logging.ERROR):
        await renew(ours, store, offer)
    assert "taken" in caplog.text
