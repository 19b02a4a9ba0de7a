"""What both wire protocols of the pretend provider share. Pure."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from outlive.testing.pretend_provider.script import Item


class Frame(NamedTuple):
    """One server-sent event. `is_piece`: it carries a piece of the answer."""

    data: bytes
    is_piece: bool = False


class Wrong(NamedTuple):
    """Why a request is refused, as the provider would say it."""

    status: int
    type: str
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was taken."""

    model: str
    items: tuple[Item, ...]
    input_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    wants_usage: bool = True


def context_limit(model: str) -> int | None:
    """Tokens that a model reads: `pretend-8k` reads 8,000, others anything."""
    size = model.rpartition("-")[2]
    return int(size[:-1]) * 1000 if size.endswith("k") and size[:-1].isdigit() else None


def tokens_of(value: Any) -> int:
    """An estimate of tokens, the same for the same value."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return max(1, len(text) // 4)


def is_note(text: str) -> bool:
    """Whether the runtime said this, and no person."""
    return text.startswith("<note>")
