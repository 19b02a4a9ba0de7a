"""What a worker of users' tools is given, and what it is not."""

from pathlib import Path

from pydantic import SecretStr

from outlive.processes.tool_worker import forget_secrets, queue_of
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
