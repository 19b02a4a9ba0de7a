"""A model's name leads to its client; what is missing is said with what to set."""

import subprocess
import sys

import pytest

from integration.loop.models.conftest import answer_of, question
from outlive.base import OutliveError
from outlive.loop.models.registry import ModelRegistry
from outlive.testing.pretend_provider import PretendProvider


@pytest.mark.anyio
@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_the_sdks_variables_alone_are_enough(api: str, provider: PretendProvider) -> None:
    models = ModelRegistry()
    client, name = await models.find(f"{api}:some/model:free")
    assert name.name == "some/model:free"
    answer = await answer_of(client, question("[[say hello]]", model=name.name))
    assert answer.text == "hello"
    assert provider.calls[0].model == "some/model:free"
    assert (await models.find(f"{api}:another"))[0] is client
    await models.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(("api", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")])
async def test_a_missing_key_is_said_with_the_variable_to_set(
    api: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
    with pytest.raises(OutliveError) as caught:
        await ModelRegistry().find(f"{api}:model")
    assert (caught.value.kind, caught.value.code) == ("denied", "model.no_key")
    assert variable in caught.value.message


def test_no_sdk_is_imported_before_its_provider_is_asked_for() -> None:
    words = "import sys, outlive.loop.models.registry; print([m for m in ('anthropic', 'openai') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
