"""A model is named `provider:name`."""

import pytest

from outlive.base import OutliveError
from outlive.loop.models.registry import ModelName, default_model, parse_model


def test_a_name_may_hold_anything_behind_its_provider() -> None:
    assert parse_model("openai:org/model:free") == ModelName("openai", "org/model:free")
    assert parse_model("demo:") == ModelName("demo", "")
    assert str(parse_model("anthropic:claude")) == "anthropic:claude"


@pytest.mark.parametrize("text", ["", "claude", "mistral:large", ":x"])
def test_an_unknown_provider_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(OutliveError, match="anthropic, demo, openai") as caught:
        parse_model(text)
    assert (caught.value.kind, caught.value.code) == ("invalid", "model.unknown_provider")


def test_a_provider_without_a_model_is_refused() -> None:
    with pytest.raises(OutliveError) as caught:
        parse_model("openai: ")
    assert caught.value.code == "model.no_name"


def test_the_key_that_is_set_decides_on_the_default_model() -> None:
    assert default_model({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}).startswith("anthropic:")
    assert default_model({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "k"}).startswith("openai:")
    assert default_model({}) == "demo:"
