"""How much models can read: tokens of a request, its answer included. Pure.

Rows are what is known of these models, rounded down where it is not sure: providers change them. Too little costs an
early compaction; too much is found out by the provider, and answered with one. A model that is not here is told what
the settings allow (`loop.context_tokens`); an agent may say what its model can read (`compaction.context_tokens`).
"""

import re
from collections.abc import Mapping

_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")

CONTEXT_TOKENS: Mapping[str, int] = {
    "anthropic:claude-opus-4-5": 200_000,
    "anthropic:claude-opus-4-6": 200_000,
    "anthropic:claude-sonnet-4-5": 200_000,
    "anthropic:claude-sonnet-4-6": 200_000,
    "anthropic:claude-haiku-4-5": 200_000,
    "openai:gpt-5.1": 272_000,
    "openai:gpt-5": 272_000,
    "openai:gpt-5-mini": 272_000,
    "openai:gpt-5-nano": 272_000,
    "openai:gpt-4.1": 1_000_000,
    "openai:gpt-4.1-mini": 1_000_000,
    "openai:gpt-4.1-nano": 1_000_000,
    "openai:gpt-4o": 128_000,
    "openai:gpt-4o-mini": 128_000,
    "openai:o3": 200_000,
    "openai:o4-mini": 200_000,
}


def context_tokens(model: str) -> int | None:
    """Of `provider:name`; None if nobody knows."""
    return CONTEXT_TOKENS.get(model) or CONTEXT_TOKENS.get(_DATE.sub("", model))
