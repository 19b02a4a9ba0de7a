"""Providers of models, as a process is told of them: by the environment variables of their SDKs.

Only a worker asks models, so only a worker is given those variables. What others have to know of them, the model of
agents that name none, they are told by a setting.
"""

import os
from collections.abc import Mapping

from outlive.loop.models.registry import default_model
from outlive.wiring.settings import Settings

_VARIABLES = ("ANTHROPIC_", "OPENAI_")  # how the names of all of them begin


def model_of_default(settings: Settings) -> str:
    """The model of agents that name none."""
    return settings.loop.model or default_model(os.environ)


def without_providers(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process sees that asks no models."""
    return {name: value for name, value in environment.items() if not name.startswith(_VARIABLES)}
